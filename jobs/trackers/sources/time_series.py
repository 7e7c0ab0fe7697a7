"""A quantity that is read now and then: what it was within a window of time, and by how much it grew over one."""

from __future__ import annotations

import bisect
import time


class Readings:
    """Values with the times of a monotonic clock at which they were read."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._values: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    def take(self, value: float) -> None:
        """The quantity is this now."""
        self._seconds.append(time.perf_counter())
        self._values.append(value)

    def within(self, begin: float, end: float) -> list[float]:
        """The values read from ``begin`` to ``end``."""
        return self._values[
            bisect.bisect_left(self._seconds, begin) : bisect.bisect_right(self._seconds, end)
        ]

    def growth(self, begin: float, end: float) -> float:
        """How much it grew from ``begin`` to ``end``: linear between the readings, constant beyond them."""
        import numpy as np

        before, after = np.interp([begin, end], self._seconds, self._values)
        return float(after - before)
