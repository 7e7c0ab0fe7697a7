"""Toward an effective batch: which micro-batch to accumulate next.

A split (in names: ``way``) is a micro-batch and an accumulation whose product is the effective
batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from jobs.record import Outcome
from orchestrator.analysis.batch_size import OUT_OF_MEMORY, BatchMeasurement, fastest
from orchestrator.search.batch_size.measured_sizes import Batch, MeasuredSizes
from orchestrator.search.batch_size.scaling_fit import Curve, accumulated_speed, optimizer_seconds

_FAILED_BY_ITS_SIZE = (Outcome.OK, *OUT_OF_MEMORY, Outcome.CRASHED)
"""Outcomes of a batch that does not fit, after which a smaller batch may fit."""


def next_way(sizes: MeasuredSizes, effective_batch: int, tolerance: float) -> Batch | None:
    """The split of the effective batch that is predicted to be the fastest.

    Among splits of about equal speed this is the split with the fewest passes. None if no split is
    predicted to beat the best measured split by more than the tolerance and its error.
    """
    if not sizes.speeds:
        return None
    ways = sizes.ways_to(effective_batch)
    predicted = _predicted_speeds(sizes, ways, effective_batch)
    if not predicted:
        return None
    highest = max(predicted.values())
    best = _best(ways)
    # A gain within the tolerance is not worth a trial.
    if best is not None and highest <= best.speed * (1 + tolerance):
        return None
    about_equal = [way for way, speed in predicted.items() if speed >= (1 - tolerance) * highest]
    # The largest micro-batch of these needs the fewest passes.
    return max(about_equal)


def _predicted_speeds(
    sizes: MeasuredSizes, ways: Mapping[Batch, BatchMeasurement], effective_batch: int
) -> dict[Batch, float]:
    """The splits that may fit and were not measured, with their predicted samples per second."""
    speeds = sizes.speeds
    optimizer = _optimizer_seconds(speeds, ways)
    predicted = {}
    for way in _unmeasured_splits(max(speeds), ways, effective_batch):
        predicted[way] = accumulated_speed(speeds, way.micro_batch, way.accumulation, optimizer)
    return predicted


def _unmeasured_splits(
    largest: int, ways: Mapping[Batch, BatchMeasurement], effective_batch: int
) -> Iterator[Batch]:
    """The exact splits of the effective batch that may fit and were not measured."""
    limit = _largest_to_accumulate(ways)
    for size in range(1, largest + 1):
        passes, rest = divmod(effective_batch, size)
        way = Batch(size, passes)
        may_fit = passes == 1 or size <= limit
        if rest == 0 and may_fit and way not in ways:
            yield way


def _optimizer_seconds(speeds: Curve, ways: Mapping[Batch, BatchMeasurement]) -> float:
    """Seconds of the optimizer in a step, as far as measured splits show."""
    # Before a split was measured, the optimizer's time counts as 0. Every pass is then predicted to
    # take as long as a whole step without accumulation.
    if _best(ways) is None:
        return 0.0
    accumulated = {}
    for way, measurement in ways.items():
        if way.accumulation > 1 and measurement.fits:
            accumulated[way] = measurement.speed
    return optimizer_seconds(speeds, accumulated)


def _best(ways: Mapping[Batch, BatchMeasurement]) -> BatchMeasurement | None:
    return fastest(measurement for measurement in ways.values() if measurement.fits)


def _largest_to_accumulate(ways: Mapping[Batch, BatchMeasurement]) -> float:
    """The largest micro-batch that may fit with accumulation, as far as failures show.

    It is below every micro-batch that ran out of memory with accumulation. It is 0 after a failure
    for a reason that smaller micro-batches share.
    """
    # Every failure with accumulation lowers the limit.
    limit = math.inf
    for way, measurement in ways.items():
        if way.accumulation == 1 or measurement.fits:
            continue
        if measurement.outcome not in _FAILED_BY_ITS_SIZE:
            return 0
        limit = min(limit, measurement.micro_batch - 1)
    return limit
