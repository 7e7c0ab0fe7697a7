"""Forms of the cost law for few measurements: measured branches, and floors that are uncertain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.performance_model import Branch, PerformanceModel

_GROWS_ON_CURVE = 1.3
"""A host-bound time above this many times that of a smaller micro-batch is no constant floor. The
time of a host varies by less."""
_GROWS_ELSEWHERE = 3.0
"""The same compared with other techniques, which change the time of the host, too."""
_EQUAL_LOADING = 0.05
"""Two host-bound rows within this distance of seconds per sample wait for the same loader, as a
logarithm."""


class MeasuredModel(PerformanceModel):
    """A law in which a measurement on the line does not affect the floor.

    The cost is a constant floor for small micro-batches, and a line for large ones. With
    few measurements, a fit could put the floor through a measurement of the line. Then the search
    would rule out all smaller micro-batches.
    """

    def costs_without_extra(self, parameters: Array) -> Array:
        """Logarithms of the costs: the line where it was measured, otherwise the whole law."""
        costs = PerformanceModel.costs_without_extra(self, parameters)
        _, base, slope_term = self.terms(parameters)
        return np.where(self.branches == Branch.GPU_BOUND, np.logaddexp(base, slope_term), costs)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedModel(MeasuredModel):
    """The law for all candidates, of which most are not measured."""

    exponents: Array
    """Exponent of the norm for each candidate, shape (candidates,)."""

    def norm_exponents(self) -> Array:
        """A smaller exponent where the floor is uncertain.

        The mean of the maximum of two uncertain costs is above both (Clark, 1961). So a lower floor
        gains little where the line is close to it.
        """
        return self.exponents


def branches_of(seen: Indices, *, costs: Array, sizes: Array, curves: Indices) -> Indices:
    """The branch of each observation, corrected; all arrays have the shape (measured,).

    A time that grows with the micro-batch is no floor, whatever limits it: a host that loads the
    samples takes longer for more of them. The law describes it by its line.
    """
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
