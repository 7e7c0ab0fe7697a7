"""Toward the largest micro-batch that fits: two small sizes predict it, then it is run."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.record import Outcome
from orchestrator.search.batch_size.measured_sizes import MeasuredSizes
from orchestrator.search.model.cost_line import CostLine

ALIGNMENT = 8
"""Sizes are multiples of this if there is a choice, because tensor cores work on such tiles."""
GROWTH = 4
"""Growth to the next size if nothing predicts it, and shrinkage after a first size that failed."""
_START_WITH_LIMIT = 16
"""The first size if a device's memory limits it. Without a limit it is ``GROWTH``."""
_MAX_GROWTH = {"one size": 8, "several sizes": 16}
"""The most growth to the next size, by what predicts it."""
_RESOLUTION = 32
"""The largest size is known to one part in this many, so below 64 to the sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LargestSize:
    """The rules that look for the largest micro-batch that fits."""

    max_micro_batch: int
    """No larger size is tried."""
    is_limited: bool
    """Whether a device's memory limits the size."""
    exact: bool
    """Find the largest to the sample."""

    def granularity(self, size: int) -> int:
        """The largest size is known well enough when it is known to this many samples."""
        return 1 if self.exact else max(1, size // _RESOLUTION)

    def wanted(self, sizes: MeasuredSizes) -> Iterator[int]:
        """The next size to try, unless the largest is known or no larger one is predicted to fit.
        Then the multiple of 8 below the largest: together they show whether it is faster."""
        low = sizes.largest
        # The smallest size above the largest that failed.
        high = min((size for size in sizes.failed if size > low), default=None)
        if not low:
            yield from self._first(high)
            return
        if high is None or not self._is_settled(sizes, low, high):
            yield from self._above(sizes, low, high)
        if low > ALIGNMENT:
            yield _aligned_down(low)

    def _first(self, failed: int | None) -> Iterator[int]:
        """The first size, and a smaller one while none fits; none after 1."""
        if failed is None:
            yield min(_START_WITH_LIMIT if self.is_limited else GROWTH, self.max_micro_batch)
        elif failed > 1:
            yield max(1, failed // GROWTH)

    def _above(self, sizes: MeasuredSizes, low: int, high: int | None) -> Iterator[int]:
        """The size to try after ``low``; none if no larger size is predicted to fit."""
        predicted = self._predicted(sizes, low)
        granularity = self.granularity(low)
        if low == self.max_micro_batch or predicted < low + granularity:
            return
        if granularity > 1:
            # One sample less, because the rounding of an allocator can be as much as a sample.
            predicted -= 1
        size = int(min(predicted, low * _MAX_GROWTH["several sizes"], self.max_micro_batch))
        if high is not None and size >= high:
            yield self._between(sizes, low, high)
        else:
            aligned = _aligned_down(size)
            yield aligned if aligned > low else size

    def _is_settled(self, sizes: MeasuredSizes, low: int, high: int) -> bool:
        """Whether nothing between a size that fits and one that failed is worth a trial."""
        # What took too long is not approached, because each trial would take almost as long.
        took_too_long = sizes.failed[high].outcome is Outcome.TIMED_OUT
        return took_too_long or high - low <= self.granularity(low)

    def _predicted(self, sizes: MeasuredSizes, low: int) -> float:
        """The largest size that the memory leaves room for; without a limit, just a larger one."""
        memory = sizes.memory
        limit = sizes.fitting[low].limit_bytes
        if limit == math.inf:
            return low * GROWTH
        if len(memory) > 1:
            return CostLine.of(memory).largest_within(limit)
        # One size: proportional memory is an upper bound, because weights take memory before any
        # sample does.
        surely_fits = int(low * limit / memory[low])
        return max(2 * low, min(surely_fits, low * _MAX_GROWTH["one size"]))

    def _between(self, sizes: MeasuredSizes, low: int, high: int) -> int:
        """A size between one that fits and one that failed: the middle, unless the failed size
        should have fitted by its predicted memory. Then the limit is likely just below it, because
        of an allocator's rounding, so the distance from it starts small, and doubles after every
        further failure."""
        middle = _middle(low, high)
        is_predicted = len(sizes.memory) > 1 and sizes.fitting[low].limit_bytes < math.inf
        if not is_predicted:
            return middle
        failures = sum(size >= high for size in sizes.failed)
        # The distance below the failed size doubles with every failure.
        distance: int = self.granularity(high) * 2 ** (failures - 1)
        return max(middle, high - distance)


def _middle(low: int, high: int) -> int:
    """Half-way between two sizes: by difference if they are near, else by ratio."""
    return (low + high) // 2 if high <= GROWTH * low else round(math.sqrt(low * high))


def _aligned_down(size: int) -> int:
    return size // ALIGNMENT * ALIGNMENT
