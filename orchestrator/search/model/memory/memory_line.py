"""The memory of a set of techniques as a line: a base, and bytes for each sample."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.search.model.arrays import Array

_USUAL_BASE = 0.5
"""Share of a prediction that does not depend on the micro-batch, if only one was predicted."""


@dataclass(frozen=True)
class MemoryLine:
    """Bytes at a few micro-batches."""

    sizes: Array
    """Micro-batches, ascending, shape (sizes,)."""
    sizes_bytes: Array
    """Bytes at each of them, shape (sizes,)."""

    def at(self, wanted: Array) -> Array:
        """Bytes at other micro-batches: linear between known ones, and beyond the last two.

        Below the smallest known micro-batch it is that one's bytes. Above the largest, it never
        falls.
        """
        values = np.interp(wanted, self.sizes, self.sizes_bytes)
        if len(self.sizes) < 2:
            return np.asarray(values)
        grown = max(0.0, self.sizes_bytes[-1] - self.sizes_bytes[-2])
        slope = grown / (self.sizes[-1] - self.sizes[-2])
        beyond = np.maximum(wanted - self.sizes[-1], 0.0)
        return np.asarray(values + slope * beyond)

    @cached_property
    def base(self) -> float:
        """Bytes that do not depend on the micro-batch: where the line meets zero.

        The slope is the median of the slopes of all pairs (Theil, 1950; Sen, 1968), because single
        predictions are off the line, by what the allocator keeps in its cache.
        """
        smallest = float(self.sizes_bytes[0])
        if len(self.sizes) < 2:
            return _USUAL_BASE * smallest
        first, second = np.triu_indices(len(self.sizes), k=1)
        slopes = self.sizes_bytes[second] - self.sizes_bytes[first]
        slopes = slopes / (self.sizes[second] - self.sizes[first])
        base = np.median(self.sizes_bytes - np.median(slopes) * self.sizes)
        return float(np.clip(base, 0.0, smallest))
