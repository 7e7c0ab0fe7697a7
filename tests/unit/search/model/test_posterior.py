"""The posterior of times and memory from few measurements."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from jobs.spec import Choice
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.search.model.observations import Observation
from orchestrator.search.model.performance_model import Branch
from orchestrator.search.model.posterior import CostModel
from tests.benchmarks.grids import grid_of

CHECKPOINT = Effect(log_time=0.25, deviation=0.1, log_memory=-0.7, memory_deviation=0.3)
PRIORS = TechniquePriors(
    effects={
        "activations": {
            "keep": Effect(deviation=0.0, memory_deviation=0.0),
            "checkpoint": CHECKPOINT,
        }
    }
)


def model(*, is_time: bool, **axes: Sequence[Choice]) -> CostModel:
    """Of both activations with the axes' values, first all that keep them."""
    specs = grid_of(activations=("keep", "checkpoint"), **axes)
    return CostModel(CostPrior(candidates_of(specs), PRIORS, is_time=is_time))


def test_cost_model_of_a_host_that_loads_samples_expects_longer_times_for_more():
    times = model(micro_batch=(8, 16, 32, 64, 128), is_time=True)
    # The host takes at least 0.03 s for a step, and loads 1500 samples per second.
    for row, seconds in ((0, 0.03), (1, 0.03), (3, 64 / 1500)):
        times.observe(row, Observation(cost=seconds, branch=Branch.HOST_BOUND))
    times.learn()
    assert np.exp(times.mean[4]) > 1.4 * 64 / 1500


def test_a_technique_that_is_a_outlier_says_nothing_about_the_others():
    times = model(loss=("plain", "chunked"), kernels=("none", "liger"), is_time=True)
    for row, seconds in ((0, 0.100), (2, 0.105), (4, 0.128)):
        times.observe(row, Observation(cost=seconds))
    times.learn()
    before = times.mean.copy()
    # With these kernels, a trial takes twenty times as long. Row 6 has its loss, but not its
    # kernels.
    times.observe(3, Observation(cost=2.0))
    times.learn()
    assert abs(times.mean[6] - before[6]) < 0.05
    assert (times.mean - before)[[1, 5, 7]].min() > 2.0
    every = np.arange(8)
    assert np.diag(times.covariance(every, every)) == pytest.approx(times.variance, abs=1e-6)


def test_cost_model_of_memory_expects_that_checkpointing_saves_activations():
    memory = model(micro_batch=(1, 4, 16), is_time=False)
    for row, gib in ((0, 12.0), (1, 18.0), (2, 42.0)):
        memory.observe(row, Observation(cost=gib * 2**30))
    memory.learn()
    assert memory.mean is not None
    expected = np.exp(memory.mean) / 2**30
    # A sample takes 2 GiB of activations. How much of that is left is uncertain before a trial.
    assert expected[5] < 30
    assert memory.variance[5] > 2 * memory.variance[3]
    every = np.arange(6)
    assert np.diag(memory.covariance(every, every)) == pytest.approx(memory.variance, abs=1e-6)


def test_forecast_times_are_expected_of_curves_and_of_those_that_are_like_them():
    axes = {"attention": ["sdpa", "eager"], "loss": ["plain", "chunked"], "micro_batch": [4, 16]}
    times = model(is_time=True, **axes)
    candidates = list(itertools.product(*axes.values()))
    # With the chunked loss a sample takes half the time. One of the attentions has a forecast.
    forecast = {("plain", 4): 0.6, ("plain", 16): 0.5, ("chunked", 4): 0.4, ("chunked", 16): 0.25}
    times.expect({candidates.index(("sdpa", *own)): seconds for own, seconds in forecast.items()})
    times.observe(candidates.index(("sdpa", "plain", 16)), Observation(cost=8.0))
    times.learn()
    ratios = []
    for attention in axes["attention"]:
        rows = [candidates.index((attention, loss, 16)) for loss in axes["loss"]]
        plain, chunked = times.mean[rows]
        ratios.append(chunked - plain)
    assert ratios == pytest.approx([-math.log(2)] * 2, abs=0.06)
