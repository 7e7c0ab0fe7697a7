"""Series of values: readings with their times, and scalars of the device."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_BLOCK = 4096  # scalars per buffer


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


class DeviceSeries:
    """Copies scalars asynchronously into pinned host memory; allocates nothing on the device."""

    def __init__(self, *, integers: bool = False) -> None:
        self._integers = integers
        self._blocks: list[torch.Tensor] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, scalar: torch.Tensor) -> None:
        """Add a scalar that the device may not have computed yet."""
        index = self._length % _BLOCK
        if index == 0:
            import torch

            # float32, because a loss that a trial computes has no more digits.
            dtype = torch.int64 if self._integers else torch.float32
            self._blocks.append(torch.empty(_BLOCK, dtype=dtype, pin_memory=scalar.is_cuda))
        # Into pinned memory, so that the copy waits in the stream and the host does not.
        self._blocks[-1][index].copy_(scalar.detach(), non_blocking=True)
        self._length += 1

    def values(self) -> list[float]:
        """All scalars so far, in order. Waits for the device."""
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return [value for block in self._blocks for value in block.tolist()][: self._length]
