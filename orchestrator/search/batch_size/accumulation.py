"""The way to an effective batch: which micro-batch to accumulate next, after what was measured of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from jobs.record import Outcome
from orchestrator.analysis.batch_size import TOO_LARGE, Size, fastest
from orchestrator.search.batch_size.scaling_fit import accumulated_speed, optimizer_seconds

Batch = tuple[int, int]
"""Micro-batch and accumulation."""


def next_way(sizes: Mapping[Batch, Size], effective: int, tolerance: float) -> Batch | None:
    """The way to the effective batch that is predicted fastest (of like ones that with the fewest passes), until
    none is predicted to be faster than a measured one by more than the tolerance and its own error."""
    speeds = {
        size.micro_batch: size.speed
        for size in sizes.values()
        if size.accumulation == 1 and size.fits
    }
    if not speeds:
        return None
    done = {batch: size for batch, size in sizes.items() if batch[0] * batch[1] == effective}
    most = min(max(speeds), _most_accumulated(done.values()))
    divisors = [size for size in range(1, max(speeds) + 1) if effective % size == 0]
    left = [(size, effective // size) for size in divisors if size <= most or size == effective]
    best = fastest(size for size in done.values() if size.fits)
    ways = {batch: size.speed for batch, size in done.items() if batch[1] > 1 and size.fits}
    once = optimizer_seconds(speeds, ways) if best else 0.0
    predicted = {
        batch: accumulated_speed(speeds, *batch, once) for batch in left if batch not in done
    }
    highest = max(predicted.values(), default=0.0)
    if not predicted or (best and highest <= best.speed * (1 + max(tolerance, best.speed_error))):
        return None
    return max(batch for batch, speed in predicted.items() if speed >= (1 - tolerance) * highest)


def _most_accumulated(done: Iterable[Size]) -> float:
    """The largest micro-batch that may still fit with accumulation: below those that ran out of memory with it;
    none where it failed for a reason that smaller ones share."""
    failed = [size for size in done if size.accumulation > 1 and not size.fits]
    if any(size.outcome not in (Outcome.OK, *TOO_LARGE, Outcome.CRASHED) for size in failed):
        return 0
    return min((size.micro_batch - 1 for size in failed), default=math.inf)
