"""The memory of a set of techniques as a line: a base, and bytes for each sample."""

from __future__ import annotations

import numpy as np

from orchestrator.search.frontier.arrays import Array

_USUAL_BASE = 0.5
"""Share of a prediction that does not depend on the micro-batch, if only one was predicted."""


def base_of(sizes: Array, sizes_bytes: Array) -> float:
    """Bytes that do not depend on the micro-batch: where the line meets zero.

    The slope is the median of the slopes of all pairs (Theil, 1950; Sen, 1968), because single
    predictions are off the line, by what the allocator keeps in its cache.
    """
    if len(sizes) < 2:
        return _USUAL_BASE * float(sizes_bytes[0])
    slopes = []
    for first in range(len(sizes) - 1):
        grown = sizes_bytes[first + 1 :] - sizes_bytes[first]
        slopes += (grown / (sizes[first + 1 :] - sizes[first])).tolist()
    base = np.median(sizes_bytes - np.median(slopes) * sizes)
    return float(np.clip(base, 0.0, sizes_bytes[0]))


def interpolated(sizes: Array, sizes_bytes: Array, wanted: Array) -> Array:
    """Bytes at the ``wanted`` micro-batches: linear between known ones, and beyond the last two.

    Below the smallest known micro-batch it is that one's bytes.
    """
    values = np.interp(wanted, sizes, sizes_bytes)
    if len(sizes) < 2:
        return np.asarray(values)
    slope = (sizes_bytes[-1] - sizes_bytes[-2]) / (sizes[-1] - sizes[-2])
    beyond = np.maximum(wanted - sizes[-1], 0.0)
    return np.asarray(values + slope * beyond)
