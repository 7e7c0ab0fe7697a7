"""Measured costs as arrays, with the branch of the performance model that each of them shows."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.performance_model import Branch

_GROWS_ON_CURVE = 1.3
"""A host-bound time above this many times that of a smaller micro-batch is no constant floor."""
_GROWS_ELSEWHERE = 3.0
"""The same compared with other techniques, which change the time of the host, too."""
_EQUAL_LOADING = 0.05
"""Host-bound rows within this distance, a logarithm, of seconds per sample wait for the same
loader."""


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

    @property
    def unit(self) -> float:
        """The smallest measured cost."""
        return float(np.exp(self.log_costs.min()))


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
        branches=_corrected_branches(seen, costs=costs, sizes=prior.sizes[rows], curves=curves),
        curves=np.unique(curves),
    )


def _corrected_branches(seen: Indices, *, costs: Array, sizes: Array, curves: Indices) -> Indices:
    """The branch of the model that each observation shows. A time that grows with the micro-batch
    is no floor: a host that loads the samples takes longer for more of them."""
    branches = seen.copy()
    floors = seen == Branch.HOST_BOUND
    for row in np.flatnonzero(floors):
        smaller = floors & (sizes < sizes[row])
        on_curve = costs[smaller & (curves == curves[row])].min(initial=np.inf)
        elsewhere = costs[smaller].min(initial=np.inf)
        if costs[row] > min(_GROWS_ON_CURVE * on_curve, _GROWS_ELSEWHERE * elsewhere):
            branches[row] = Branch.GPU_BOUND
    # A host that loads the samples is as fast in samples per second with other techniques.
    per_sample = np.log(costs / sizes)
    for row in np.flatnonzero(floors & (branches == Branch.GPU_BOUND)):
        is_equal = np.abs(per_sample - per_sample[row]) < _EQUAL_LOADING
        branches[floors & is_equal] = Branch.GPU_BOUND
    return branches
