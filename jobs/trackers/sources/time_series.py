"""A quantity that is read at intervals: its values and its growth within a window of time."""

from __future__ import annotations

import bisect
import time


class TimeSeries:
    """Readings, each with its time (seconds of ``time.perf_counter``)."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._values: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    def append(self, value: float) -> None:
        self._seconds.append(time.perf_counter())
        self._values.append(value)

    def between(self, begin: float, end: float) -> list[float]:
        """The values that were read from ``begin`` to ``end``, both included."""
        first = bisect.bisect_left(self._seconds, begin)
        after_last = bisect.bisect_right(self._seconds, end)
        return self._values[first:after_last]

    def growth(self, begin: float, end: float) -> float:
        """The value at ``end`` less the value at ``begin``."""
        import numpy as np

        # Linear between two readings, and constant before the first and after the last.
        at_begin, at_end = np.interp([begin, end], self._seconds, self._values)
        return float(at_end - at_begin)
