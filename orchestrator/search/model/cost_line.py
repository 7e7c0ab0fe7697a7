"""A cost along a curve: linear between the micro-batches at which it is known, and beyond them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from orchestrator.search.model.arrays import Array

_USUAL_BASE = 0.5
"""Share of a cost that does not depend on the micro-batch, if it is known at only one."""


@dataclass(frozen=True, eq=False)
class CostLine:
    """Bytes or seconds at a few micro-batches."""

    sizes: Array
    """Micro-batches, ascending, shape (sizes,)."""
    costs: Array
    """The cost of each of them, shape (sizes,)."""

    @classmethod
    def of(cls, costs: Mapping[int, float]) -> Self:
        """From the cost of each micro-batch."""
        return cls(*np.array(sorted(costs.items()), float).T)

    def at(self, wanted: Array | float) -> Array:
        """The cost of other micro-batches. Below the smallest known one, it is that one's."""
        beyond = np.maximum(wanted - self.sizes[-1], 0.0)
        return np.asarray(np.interp(wanted, self.sizes, self.costs) + self.slope * beyond)

    def largest_within(self, limit: float) -> float:
        """The largest micro-batch within a limit that some known one keeps; infinite if costs do
        not grow."""
        last = int(np.flatnonzero(self.costs <= limit)[-1])
        slope = self.slope
        if last + 1 < len(self.sizes):
            slope = (np.diff(self.costs) / np.diff(self.sizes))[last]
        if slope <= 0 or limit == math.inf:
            return math.inf
        # Rounded down: a part of a sample does not fit.
        return float(self.sizes[last] + math.floor((limit - self.costs[last]) / slope))

    @property
    def slope(self) -> float:
        """The cost of one more sample beyond the largest micro-batch, never below 0: from a
        micro-batch of at most half the largest, if there is one, so that the allocator's rounding
        hardly matters."""
        if len(self.sizes) == 1:
            return float(self.costs[0] / self.sizes[0])
        other = max(0, np.searchsorted(2 * self.sizes, self.sizes[-1], side="right") - 1)
        grown = self.costs[-1] - self.costs[other]
        return max(0.0, float(grown / (self.sizes[-1] - self.sizes[other])))

    @cached_property
    def base(self) -> float:
        """The cost that does not depend on the micro-batch: where the line meets zero. The slope is
        the median of the slopes of all pairs (Theil, 1950; Sen, 1968), because single predictions
        are off the line, by what the allocator keeps in its cache."""
        smallest = float(self.costs[0])
        if len(self.sizes) < 2:
            return _USUAL_BASE * smallest
        first, second = np.triu_indices(len(self.sizes), k=1)
        slopes = (self.costs[second] - self.costs[first]) / (self.sizes[second] - self.sizes[first])
        base = np.median(self.costs - np.median(slopes) * self.sizes)
        return float(np.clip(base, 0.0, smallest))
