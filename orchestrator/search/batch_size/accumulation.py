"""Toward an effective batch: which micro-batch to accumulate next."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jobs.record import Outcome
from orchestrator.analysis.batch_size import OUT_OF_MEMORY, BatchMeasurement, fastest
from orchestrator.search.batch_size.measured_sizes import Batch, MeasuredSizes
from orchestrator.search.batch_size.scaling_fit import accumulated_speed, optimizer_seconds

_FAILED_BY_ITS_SIZE = (Outcome.OK, *OUT_OF_MEMORY, Outcome.CRASHED)
"""Outcomes of a batch that does not fit, after which a smaller one may."""


def next_way(sizes: MeasuredSizes, effective_batch: int, tolerance: float) -> Batch | None:
    """The split of the effective batch that is predicted fastest.

    Of splits that are about equal, the one with fewest passes.

    None if no split is predicted to be faster than a measured one by more than the tolerance and
    its error.
    """
    speeds = sizes.speeds
    if not speeds:
        return None
    ways = sizes.ways_to(effective_batch)
    predicted = _predicted_speeds(sizes, ways, effective_batch)
    if not predicted:
        return None
    highest = max(predicted.values())
    best = _best(ways)
    if best is not None and highest <= best.speed * (1 + max(tolerance, best.error95)):
        return None
    about_equal = [way for way, speed in predicted.items() if speed >= (1 - tolerance) * highest]
    return max(about_equal)


def _predicted_speeds(
    sizes: MeasuredSizes, ways: Mapping[Batch, BatchMeasurement], effective_batch: int
) -> dict[Batch, float]:
    """The splits that may fit and were not measured, with their predicted speeds."""
    speeds = sizes.speeds
    accumulated = {way: own.speed for way, own in ways.items() if way.accumulation > 1 and own.fits}
    # Before a way was measured, the optimizer's time is taken for 0: every pass costs what it did
    # alone.
    optimizer = optimizer_seconds(speeds, accumulated) if _best(ways) else 0.0
    limit = _largest_to_accumulate(ways)
    predicted = {}
    for size in range(1, max(speeds) + 1):
        passes, rest = divmod(effective_batch, size)
        way = Batch(size, passes)
        may_fit = passes == 1 or size <= limit
        if rest == 0 and may_fit and way not in ways:
            predicted[way] = accumulated_speed(speeds, size, passes, optimizer)
    return predicted


def _best(ways: Mapping[Batch, BatchMeasurement]) -> BatchMeasurement | None:
    return fastest(own for own in ways.values() if own.fits)


def _largest_to_accumulate(ways: Mapping[Batch, BatchMeasurement]) -> float:
    """The largest micro-batch that may fit with accumulation, as far as failures show.

    Below those that ran out of memory with it. 0 if it failed for a reason that smaller ones share.
    """
    failed = [own for way, own in ways.items() if way.accumulation > 1 and not own.fits]
    if any(own.outcome not in _FAILED_BY_ITS_SIZE for own in failed):
        return 0
    return min((own.micro_batch - 1 for own in failed), default=math.inf)
