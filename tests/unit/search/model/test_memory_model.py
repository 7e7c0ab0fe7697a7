"""The memory of every candidate, from predictions and measurements."""

import math

import numpy as np
import pytest

from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.search.model.memory.memory_model import MemoryModel
from orchestrator.units import GIB
from tests.benchmarks.grids import make_spec

PRIORS = TechniquePriors(
    effects={
        "compile": {
            "none": Effect(deviation=0.0, memory_deviation=0.0),
            "inductor": Effect(log_memory=-0.2, memory_deviation=0.3, models=3),
        }
    }
)
SIZES = (2, 8, 32)


def memory_model(*, is_predicted: bool) -> MemoryModel:
    """Trials of three sizes: eager, compiled, and compiled with another loop; then others."""
    listed = []
    predicted = {}
    for compiler, loop, kernels in (
        ("none", "trainer", "none"),
        ("inductor", "trainer", "none"),
        ("inductor", "trainer_async", "none"),
        ("none", "trainer", "liger"),
    ):
        for size in SIZES:
            choices = {"compile": compiler, "loop": loop, "kernels": kernels}
            listed.append(make_spec({**choices, "micro_batch": size, "accumulation": 1}))
            if (compiler, kernels) == ("none", "none"):
                predicted[listed[-1].trial_id] = (10.0 + size) * GIB
    candidates = candidates_of(listed)
    prior = CostPrior(candidates, PRIORS, is_time=False)
    return MemoryModel(candidates, prior, predicted if is_predicted else {}, PRIORS)


@pytest.mark.parametrize("is_predicted", [True, False])
def test_memory_measured_with_one_loop_is_that_of_the_other_loop(is_predicted):
    model = memory_model(is_predicted=is_predicted)
    for index, size in enumerate(SIZES):
        model.observe(index, (10 + size) * GIB)
    model.observe(5, 25 * GIB)
    model.learn()
    assert model.mean is not None
    # Index 8 is the same compiled trial with the other loop, and index 7 a smaller one.
    assert math.exp(model.mean[8]) / GIB == pytest.approx(25, rel=0.03)
    assert model.deviation[8] < 0.03
    assert model.deviation[8] < model.deviation[7]
    assert np.exp(model.mean[4]) == pytest.approx(np.exp(model.mean[7]))


def test_memory_of_an_optimizer_is_the_same_with_another_loop():
    listed = []
    for optimizer, loop in (("adamw", "trainer"), ("sgd", "trainer"), ("sgd", "trainer_async")):
        for size in SIZES:
            choices = {"optimizer": optimizer, "loop": loop}
            listed.append(make_spec({**choices, "micro_batch": size, "accumulation": 1}))
    candidates = candidates_of(listed)
    prior = CostPrior(candidates, PRIORS, is_time=False)
    model = MemoryModel(candidates, prior, {}, PRIORS)
    for index, size in enumerate(SIZES):
        model.observe(index, (10 + size) * GIB)
        model.observe(index + 3, (5 + size) * GIB)
    model.learn()
    assert model.mean is not None
    assert np.exp(model.mean[6:9]) / GIB == pytest.approx([7, 13, 37], rel=0.05)
