"""Memory of every candidate, from predictions of a few and from measurements, and which are
predicted.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.cost_line import CostLine
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.search.model.memory.memory_model import MemoryModel
from orchestrator.search.model.memory.predicted_memory import PredictedMemory
from orchestrator.search.model.memory.prediction_shortlist import prediction_shortlist
from orchestrator.units import GIB
from tests.benchmarks.grids import grid_of

PRIORS = TechniquePriors(
    effects={
        "compile": {
            "none": Effect(deviation=0.0, memory_deviation=0.0),
            "inductor": Effect(log_memory=-0.2, memory_deviation=0.3, models=3),
        },
        "activations": {"keep": Effect(deviation=0.0, memory_deviation=0.0)},
    }
)


SIZES = (2, 8, 32)
TRIALS = grid_of(
    compile=("none", "inductor"), activations=("keep", "checkpoint"), micro_batch=SIZES
)
SMALLEST_AND_LARGEST = {0: 12.0, 2: 42.0}
"""Predictions for trials that keep all: 10 GiB, and 1 GiB per sample."""


def memory_of(
    trials: Sequence[TrialSpec], gib: Mapping[int, float], priors: TechniquePriors = PRIORS
) -> PredictedMemory:
    """``gib`` has the predictions, by the position of the trial."""
    predicted = {trials[index].trial_id: own * GIB for index, own in gib.items()}
    memory = PredictedMemory(candidates_of(trials), predicted, priors)
    memory.read()
    return memory


def test_predicted_memory_of_one_size_says_nothing_of_larger_ones():
    predicted = {TRIALS[0].trial_id: 12.0 * GIB}
    assert not PredictedMemory(candidates_of(TRIALS), predicted, PRIORS).read()


def test_predicted_memory_of_other_techniques_is_transferred_with_their_effect():
    memory = memory_of(TRIALS, SMALLEST_AND_LARGEST)
    gib = np.exp(memory.log_bytes()) / GIB
    assert gib[:3] == pytest.approx([12, 18, 42])
    # The effect on all memory becomes twice that on the samples. It never falls below the smallest
    # prediction.
    lowered = 10 + math.exp(-0.4) * (gib[:3] - 10)
    assert gib[6:9] == pytest.approx(np.maximum(lowered, 12))
    assert memory.transfers.tolist() == [False] * 3 + [True] * 9


def test_predicted_memory_uses_the_recorded_effect_on_samples():
    compiled = Effect(log_memory=-0.2, log_sample_memory=-0.7, sample_memory_deviation=0.1)
    priors = TechniquePriors(effects={"compile": {"inductor": compiled}})
    memory = memory_of(TRIALS, SMALLEST_AND_LARGEST, priors)
    assert np.exp(memory.log_bytes()[8]) / GIB == pytest.approx(10 + math.exp(-0.7) * 32)


def test_predicted_memory_is_transferred_from_the_curve_with_the_most_defaults():
    values = ("checkpoint", "keep", "budget_0.5")
    listed = grid_of(compile=("none", "inductor"), activations=values, micro_batch=SIZES)
    checkpointed = {index: 10 + 0.1 * size for index, size in enumerate(SIZES)}
    kept = {index + 3: 10.0 + size for index, size in enumerate(SIZES)}
    # Without the uncompiled trials of the last value, no predicted trial has it.
    memory = memory_of([*listed[:6], *listed[9:]], checkpointed | kept)
    # Half of the activations are kept: more than what checkpointing needs.
    assert np.exp(memory.log_bytes()[-1]) / GIB > 20


def test_predicted_memory_of_a_loss_does_not_depend_on_the_activations():
    listed = grid_of(
        activations=("keep", "budget_0.05"), loss=("plain", "chunked"), micro_batch=SIZES
    )
    plain = {index: 10.0 + 2 * size for index, size in enumerate(SIZES)}
    chunked = {index + 3: 10.0 + size for index, size in enumerate(SIZES)}
    gib = np.exp(memory_of(listed, plain | chunked).log_bytes()) / GIB
    assert gib[8] - gib[11] == pytest.approx(32)


def test_predicted_memory_errs_together_where_the_same_technique_changes():
    memory = memory_of(TRIALS, SMALLEST_AND_LARGEST)
    every = np.arange(12)
    covariance = memory.covariance(every, every, of_samples=True)
    assert covariance[0].max() == 0
    # Compiled trials share the compiler's error, whatever they keep.
    expected = 4 * (0.2**2 / 4 + 0.3**2)
    assert covariance[6, 9] == pytest.approx(expected)
    assert covariance[3, 6] == 0
    assert np.diag(covariance) == pytest.approx(memory.variances(of_samples=True))
    # Two changes err more than one.
    assert covariance[9, 9] > covariance[6, 6]
    # Their memory errs only as far as it is that of samples.
    weights = memory.sample_weights()
    assert weights[6] < weights[7] < weights[8] < 1


def test_predicted_memory_does_not_depend_on_the_data_loader_or_the_loop():
    loaders, loops = ("workers_0", "workers_4"), ("trainer", "trainer_async")
    listed = grid_of(dataloader=loaders, loop=loops, micro_batch=SIZES)
    memory = memory_of(listed, SMALLEST_AND_LARGEST)
    assert not memory.transfers.any()
    assert np.exp(memory.log_bytes()) / GIB == pytest.approx([12, 18, 42] * 4)


def test_predicted_memory_of_the_only_size_is_used_whatever_feeds_it():
    memory = memory_of(grid_of(dataloader=("workers_0", "workers_4")), {0: 12.0})
    assert np.exp(memory.log_bytes()) / GIB == pytest.approx([12, 12])


@pytest.mark.parametrize(
    ("largest", "expected"),
    # What the allocator caches can make a larger micro-batch need a little less.
    [(14.0, [10.0, 12.0, 22.0]), (9.0, [10.0, 9.5, 9.0])],
)
def test_line_goes_on_beyond_the_largest_micro_batch_but_never_falls(largest, expected):
    line = CostLine(np.array([4.0, 8.0]), np.array([10.0, largest]))
    assert line.at(np.array([2.0, 6.0, 16.0])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sizes", "sizes_bytes", "base"),
    [
        ([4.0], [10.0], 5.0),
        ([2.0, 4.0, 8.0], [7.0, 9.0, 13.0], 5.0),
        # One prediction is far off the line; the median slope does not notice.
        ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 30.0, 10.0], 5.0),
        # Negative by the slope, and above all of the smallest.
        ([1.0, 2.0], [1.0, 9.0], 0.0),
        ([1.0, 2.0], [9.0, 8.0], 9.0),
    ],
)
def test_base_is_where_the_line_meets_zero(sizes, sizes_bytes, base):
    assert CostLine(np.array(sizes), np.array(sizes_bytes)).base == pytest.approx(base)


def memory_model(specs: Sequence[TrialSpec], predicted: Mapping[str, float]) -> MemoryModel:
    return MemoryModel(candidates_of(specs), predicted, PRIORS)


@pytest.mark.parametrize("is_predicted", [True, False])
def test_memory_measured_with_one_loop_is_that_of_the_other_loop(is_predicted):
    loops = ("trainer", "trainer_async")
    specs = grid_of(compile=("none", "inductor"), loop=loops, micro_batch=SIZES)
    predicted = {spec.trial_id: (10.0 + spec.micro_batch) * GIB for spec in specs[:3]}
    model = memory_model(specs, predicted if is_predicted else {})
    for index, size in enumerate(SIZES):
        model.observe(index, (10 + size) * GIB)
    model.observe(8, 25 * GIB)
    model.learn()
    # Index 11 is the same compiled trial with the other loop, and index 10 a smaller one.
    assert math.exp(model.mean[11]) / GIB == pytest.approx(25, rel=0.03)
    assert model.deviation[11] < 0.03
    assert model.deviation[11] < model.deviation[10]
    assert np.exp(model.mean[7]) == pytest.approx(np.exp(model.mean[10]))


def test_memory_of_an_optimizer_is_the_same_with_another_loop():
    adamw = grid_of(optimizer=("adamw",), loop=("trainer",), micro_batch=SIZES)
    sgd = grid_of(optimizer=("sgd",), loop=("trainer", "trainer_async"), micro_batch=SIZES)
    model = memory_model([*adamw, *sgd], {})
    for index, size in enumerate(SIZES):
        model.observe(index, (10 + size) * GIB)
        model.observe(index + 3, (5 + size) * GIB)
    model.learn()
    assert np.exp(model.mean[6:9]) / GIB == pytest.approx([7, 13, 37], rel=0.05)


def test_sets_that_no_other_stands_for_are_predicted_first_and_single_changes_before_pairs():
    trials = grid_of(
        activations=("checkpoint", "keep"),
        attention=("auto", "unmasked", "sdpa_cudnn"),
        loss=("plain", "chunked"),
        loop=("trainer", "trainer_async"),
        micro_batch=tuple(range(1, 21)),
    )
    chosen = prediction_shortlist(trials)
    sets: list[tuple[str, ...]] = []
    for trial in chosen:
        changed = tuple(str(trial.choices[axis]) for axis in ("activations", "loss", "attention"))
        if changed not in sets:
            sets.append(changed)
    assert sets[0] == ("checkpoint", "plain", "auto")
    assert set(sets[1:3]) == {("keep", "plain", "auto"), ("checkpoint", "chunked", "auto")}
    assert sets[3] == ("keep", "chunked", "auto")
    assert {trial.choices["loop"] for trial in chosen} == {"trainer"}
    assert [trial.micro_batch for trial in chosen[:3]] == [1, 4, 16]
