"""Measured costs, and all of them as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.branches import branches_of
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.performance_model import Branch


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A measured cost: bytes, or seconds of a micro-batch."""

    cost: float
    relative_error: float = 0.0
    """Half the 95 % interval, relative to the cost."""
    branch: Branch = Branch.UNKNOWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """All observations as arrays of shape (measured,)."""

    rows: Indices
    """The candidate of each observation."""
    log_costs: Array
    stated_variances: Array
    """Noise variances of the logarithms, as the trials state them."""
    branches: Indices
    curves: Indices
    """The curves that were measured, ascending, shape (curves,)."""


def as_arrays(observations: Mapping[int, Observation], prior: CostPrior) -> Measured:
    """The observations, which are given by candidate, as arrays."""
    rows = np.array(list(observations), int)
    costs = np.array([observation.cost for observation in observations.values()])
    errors = np.array([observation.relative_error for observation in observations.values()])
    seen = np.array([observation.branch for observation in observations.values()], int)
    curves = prior.curves.curve_of[rows]
    return Measured(
        rows=rows,
        log_costs=np.log(costs),
        # Half a 95 % interval is about two standard deviations. A small relative error is also the
        # error of the logarithm.
        stated_variances=(errors / 2) ** 2,
        branches=branches_of(seen, costs=costs, sizes=prior.sizes[rows], curves=curves),
        curves=np.unique(curves),
    )
