"""Forms of the cost law for few measurements: measured branches, and floors that are uncertain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.search.frontier.arrays import Array
from orchestrator.search.frontier.cost_law import Branch, CostLaw


class SeenBranchLaw(CostLaw):
    """A law in which a measurement on the line does not affect the floor.

    The cost is a constant floor for small micro-batches, and a line for large ones. With
    few measurements, a fit could put the floor through a measurement of the line. Then the search
    would rule out all smaller micro-batches.
    """

    def costs_without_extra(self, parameters: Array) -> Array:
        """Logarithms of the costs: the line where it was measured, otherwise the whole law."""
        costs = CostLaw.costs_without_extra(self, parameters)
        _, base, slope_term = self.terms(parameters)
        return np.where(self.branches == Branch.LINE, np.logaddexp(base, slope_term), costs)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtendedLaw(SeenBranchLaw):
    """The law for all candidates, of which most are not measured."""

    exponents: Array
    """Exponent of the norm for each candidate, shape (candidates,)."""

    def norm_exponents(self) -> Array:
        """A smaller exponent where the floor is uncertain.

        The mean of the maximum of two uncertain costs is above both (Clark, 1961). So a lower floor
        gains little where the line is close to it.
        """
        return self.exponents
