"""Predicted memory of every candidate, from predictions of a few."""

import math

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.search.model.memory.predicted_memory import PredictedMemory
from orchestrator.units import GIB
from tests.benchmarks.grids import make_spec

PRIORS = TechniquePriors(
    effects={
        "compile": {
            "none": Effect(deviation=0.0, memory_deviation=0.0),
            "inductor": Effect(log_memory=-0.2, memory_deviation=0.3, models=3),
        },
        "activations": {"keep": Effect(deviation=0.0, memory_deviation=0.0)},
    }
)


def trials() -> list[TrialSpec]:
    listed = []
    for compiler in ("none", "inductor"):
        for activations in ("keep", "checkpoint"):
            for size in (2, 8, 32):
                choices = {"compile": compiler, "activations": activations, "micro_batch": size}
                listed.append(make_spec({**choices, "accumulation": 1}))
    return listed


def read(sizes: tuple[int, ...]) -> PredictedMemory:
    """Predicted for the eager trials that keep all, of these sizes."""
    predicted = {}
    for trial in trials():
        choices = (trial.choices["compile"], trial.choices["activations"])
        if choices == ("none", "keep") and trial.micro_batch in sizes:
            predicted[trial.trial_id] = (10 + trial.micro_batch) * GIB
    memory = PredictedMemory(candidates_of(trials()), predicted, PRIORS)
    assert memory.read() == (len(sizes) > 1)
    return memory


def test_predicted_memory_of_one_size_says_nothing_of_larger_ones():
    memory = read((2,))
    assert not memory.borrows.any()


def test_predicted_memory_of_other_techniques_is_borrowed_with_their_effect():
    memory = read((2, 32))
    gib = np.exp(memory.log_bytes()) / GIB
    assert gib[:3] == pytest.approx([12, 18, 42])
    # Of 10 GiB and 1 GiB per sample, the effect on all memory becomes twice that on the samples. It
    # never falls below the smallest prediction.
    lowered = 10 + math.exp(-0.4) * (gib[:3] - 10)
    assert gib[6:9] == pytest.approx(np.maximum(lowered, 12))
    assert memory.borrows.tolist() == [False] * 3 + [True] * 9


def test_predicted_memory_uses_the_recorded_effect_on_samples():
    compiled = Effect(log_memory=-0.2, log_sample_memory=-0.7, sample_memory_deviation=0.1)
    priors = TechniquePriors(effects={"compile": {"inductor": compiled}})
    predicted = {trial.trial_id: (10 + trial.micro_batch) * GIB for trial in trials()[:3]}
    memory = PredictedMemory(candidates_of(trials()), predicted, priors)
    assert memory.read()
    assert np.exp(memory.log_bytes()[8]) / GIB == pytest.approx(10 + math.exp(-0.7) * 32)


def test_predicted_memory_is_borrowed_from_the_curve_with_the_most_defaults():
    predicted = {}
    for trial in trials():
        if trial.choices["compile"] == "none":
            saved = 1 if trial.choices["activations"] == "keep" else 0.1
            predicted[trial.trial_id] = (10 + saved * trial.micro_batch) * GIB
    listed = []
    for trial in trials():
        if trial.choices["compile"] == "none" or trial.choices["activations"] == "keep":
            listed.append(trial)
    for size in (2, 8, 32):
        choices = {"compile": "inductor", "activations": "budget_0.5", "micro_batch": size}
        listed.append(make_spec({**choices, "accumulation": 1}))
    memory = PredictedMemory(
        candidates_of(listed[3:6] + listed[:3] + listed[6:]), predicted, PRIORS
    )
    assert memory.read()
    # Half of the activations are kept: more than what checkpointing needs.
    assert np.exp(memory.log_bytes()[-1]) / GIB > 20


def test_predicted_memory_of_a_loss_does_not_depend_on_the_activations():
    predicted = {}
    listed = []
    for activations in ("keep", "budget_0.05"):
        for loss in ("plain", "chunked"):
            for size in (2, 8, 32):
                choices = {"activations": activations, "loss": loss, "micro_batch": size}
                listed.append(make_spec({**choices, "accumulation": 1}))
                if activations == "keep":
                    of_sample = 2 if loss == "plain" else 1
                    predicted[listed[-1].trial_id] = (10 + of_sample * size) * GIB
    memory = PredictedMemory(candidates_of(listed), predicted, PRIORS)
    assert memory.read()
    gib = np.exp(memory.log_bytes()) / GIB
    assert gib[8] - gib[11] == pytest.approx(32)


def test_predicted_memory_errs_together_where_the_same_technique_changes():
    memory = read((2, 32))
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
    listed = list(trials()[:3])
    for size in (2, 8, 32):
        fed = {"compile": "none", "activations": "keep", "micro_batch": size, "accumulation": 1}
        listed.append(make_spec({**fed, "dataloader": "workers_4", "loop": "trainer_async"}))
    predicted = {trial.trial_id: (10 + trial.micro_batch) * GIB for trial in listed[:3]}
    memory = PredictedMemory(candidates_of(listed), predicted, PRIORS)
    assert memory.read()
    assert not memory.borrows.any()
    assert memory.curves.tolist() == [0] * 6


def test_predicted_memory_of_the_only_size_is_used_whatever_feeds_it():
    only = trials()[0]
    fed = make_spec({**only.choices, "dataloader": "workers_4"})
    memory = PredictedMemory(candidates_of([only, fed]), {only.trial_id: 12.0 * GIB}, PRIORS)
    assert memory.read()
    assert np.exp(memory.log_bytes()) / GIB == pytest.approx([12, 12])
