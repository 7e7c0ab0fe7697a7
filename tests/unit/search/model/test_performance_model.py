"""The performance model of a cost: its derivatives, its corner, and what an optimizer adds."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.hyperparameters import OF_TIME
from orchestrator.search.model.performance_model import Branch, PerformanceModel
from tests.benchmarks.grids import make_spec

SIZES = (1, 4, 16, 64)
CANDIDATES = candidates_of(
    make_spec(
        {"precision": precision, "optimizer": optimizer, "micro_batch": size, "accumulation": 2},
        {} if optimizer == "adamw" else {"optimizer": optimizer},
    )
    for precision in ("fp32", "bf16")
    for optimizer in ("adamw", "sgd")
    for size in SIZES
)
PARAMETERS = np.log([20.0, 12.0, 8.0, 5.0, 2.0, 1.0, 1.5])
"""Floors, bases and slopes of two curves, and the overhead of SGD."""


def model(*, branches: dict[int, Branch] | None = None, is_time: bool = True) -> PerformanceModel:
    """The performance model of the candidates, where some branches were seen."""
    seen = np.full(len(CANDIDATES), Branch.UNKNOWN, int)
    for index, branch in (branches or {}).items():
        seen[index] = branch
    prior = CostPrior(CANDIDATES, TechniquePriors(), is_time=is_time)
    return PerformanceModel(
        sizes=prior.sizes,
        overhead_shares=prior.overhead_shares,
        curves=prior.curves.curve_of,
        curve_count=prior.curves.count,
        families=prior.families,
        unit=3.0,
        branches=seen,
        norm_exponents=np.full(len(CANDIDATES), OF_TIME.max_norm_exponent),
    )


@pytest.mark.parametrize("branch", list(Branch))
def test_jacobian_equals_numerical_differences(branch):
    of_branch = model(branches=dict.fromkeys(range(0, len(CANDIDATES), 3), branch))
    expected = approx_fprime(PARAMETERS, of_branch.costs)
    assert of_branch.jacobian(PARAMETERS) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("branch", "violated"), [(Branch.HOST_BOUND, 3), (Branch.GPU_BOUND, 0)])
def test_branch_violations_are_where_the_other_branch_is_higher(branch, violated):
    # The largest micro-batch is far up the line, the smallest on the floor.
    of_branch = model(branches={violated: branch})
    assert np.flatnonzero(of_branch.branch_violations(PARAMETERS) > 1).tolist() == [violated]
    expected = approx_fprime(PARAMETERS, of_branch.branch_violations)
    assert of_branch.branch_jacobian(PARAMETERS) == pytest.approx(expected, abs=1e-4)


def test_branch_that_was_seen_and_is_higher_is_no_violation():
    agreeing = model(branches={0: Branch.HOST_BOUND, 3: Branch.GPU_BOUND})
    assert not agreeing.branch_violations(PARAMETERS).any()


def test_cost_is_the_higher_branch_plus_the_extra():
    costs = np.exp(model().costs(PARAMETERS))
    floor, base, slope, overhead = 20.0, 8.0, 2.0, np.log(1.5) * 3.0 / 2
    without = [max(floor, base + slope * size) for size in SIZES]
    assert costs[:4] == pytest.approx(without, rel=0.01)
    assert costs[4:8] - costs[:4] == pytest.approx([overhead] * 4)


def test_extra_of_memory_is_not_shared_by_micro_batches():
    costs = np.exp(model(is_time=False).costs(PARAMETERS))
    assert costs[4:8] - costs[:4] == pytest.approx([np.log(1.5) * 3.0] * 4)


def test_law_gives_every_curve_its_parameters_and_optimizers_none():
    assert model().curve_count == 2
    assert model().curves.tolist() == [0] * 8 + [1] * 8
    assert model().families.tolist() == [-1] * 4 + [0] * 4 + [-1] * 4 + [0] * 4
