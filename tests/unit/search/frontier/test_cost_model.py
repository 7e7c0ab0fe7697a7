"""One cost learned from measurements: the law's shape, doubt, outliers."""

from __future__ import annotations

import numpy as np
import pytest

from jobs.spec import TrialSpec
from orchestrator.search.frontier.cost_model import CostModel
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.observations import Observation
from orchestrator.search.model.performance_model import Branch
from tests.benchmarks.grids import make_spec

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def batches(*sizes: int) -> list[TrialSpec]:
    """One technique at some micro-batches."""
    return [make_spec({"micro_batch": size, "accumulation": 1}) for size in sizes]


def test_cost_model_without_observations_has_no_posterior() -> None:
    assert CostModel(candidates_of(batches(*SIZES)), is_time=False).posterior is None


def test_cost_model_learns_its_law_and_doubts_what_is_farther() -> None:
    model = CostModel(candidates_of(batches(*SIZES)), is_time=False)
    costs = {size: max(50.0, 10.0 + 5.0 * size) for size in SIZES}
    for size in (1, 16, 32):
        model.observe(SIZES.index(size), Observation(cost=costs[size]))
    assert model.posterior is not None
    learned = dict(zip(SIZES, np.exp(model.posterior.mean), strict=True))
    doubt = dict(zip(SIZES, model.posterior.deviation, strict=True))
    # The corner, at micro-batch 8, is where the law is known least.
    for size in (1, 2, 4, 16, 32, 64, 128):
        assert learned[size] == pytest.approx(costs[size], rel=0.05)
    assert doubt[32] < doubt[64] < doubt[128]


def test_cost_model_learns_that_an_optimizer_adds_the_same_everywhere() -> None:
    candidates = candidates_of(
        make_spec({"micro_batch": size, "optimizer": name}, {"optimizer": name})
        for name in ("adamw", "sgd")
        for size in (1, 4, 16, 64)
    )
    extra = {"adamw": 0.0, "sgd": -6.0}
    costs = [
        10.0 + 2.0 * own.micro_batch + extra[str(own.trials[0].choices["optimizer"])]
        for own in candidates
    ]
    model = CostModel(candidates, is_time=False)
    for index in (0, 1, 2, 3, 5):
        model.observe(index, Observation(cost=costs[index]))
    assert model.posterior is not None
    assert np.exp(model.posterior.mean) == pytest.approx(costs, rel=0.02)


def test_cost_model_takes_a_new_observation_in_place_of_the_old() -> None:
    candidates = candidates_of(batches(*SIZES))
    model, control = (CostModel(candidates, is_time=False) for _ in range(2))
    model.observe(0, Observation(cost=99.0))
    model.observe(0, Observation(cost=10.0))
    control.observe(0, Observation(cost=10.0))
    assert model.posterior is not None
    assert control.posterior is not None
    assert model.posterior.mean[0] == pytest.approx(control.posterior.mean[0], abs=1e-3)


def test_cost_model_of_a_floor_says_little_about_the_line() -> None:
    candidates = candidates_of(batches(*SIZES))

    def doubt_of_largest(branch: Branch) -> float:
        model = CostModel(candidates, is_time=True)
        for index in (0, 1, 2):
            seconds = 1.0 if branch is Branch.HOST_BOUND else float(SIZES[index])
            model.observe(index, Observation(cost=seconds, branch=branch))
        assert model.posterior is not None
        return float(model.posterior.deviation[-1])

    assert doubt_of_largest(Branch.HOST_BOUND) > 2 * doubt_of_largest(Branch.GPU_BOUND)


def test_cost_model_of_a_time_is_not_bent_by_an_outlier() -> None:
    candidates = candidates_of(batches(*SIZES))
    model = CostModel(candidates, is_time=True)
    seconds = {size: 0.01 + 0.003 * size for size in SIZES}
    for index, size in enumerate(SIZES):
        factor = 1.3 if size == 16 else 1.0
        model.observe(
            index,
            Observation(cost=factor * seconds[size], relative_error=0.002, branch=Branch.GPU_BOUND),
        )
    assert model.posterior is not None
    learned = dict(zip(SIZES, np.exp(model.posterior.mean), strict=True))
    assert learned[64] == pytest.approx(seconds[64], rel=0.02)
    assert learned[16] < 1.1 * seconds[16]
