"""The memory of every candidate, from predictions and measurements."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.memory.memory_model import MemoryModel
from orchestrator.units import GIB
from tests.benchmarks.grids import grid_of
from tests.unit.search.model.test_predicted_memory import PRIORS, SIZES


def memory_model(specs: Sequence[TrialSpec], predicted: Mapping[str, float]) -> MemoryModel:
    candidates = candidates_of(specs)
    return MemoryModel(candidates, predicted, PRIORS)


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
