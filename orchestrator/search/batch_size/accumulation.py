"""Toward an effective batch: which split of it into accumulated micro-batches to measure next."""

import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from orchestrator.analysis.batch_size_answer import BatchMeasurement, fastest
from orchestrator.search.batch_size.measured_sizes import (
    FAILED_BY_ITS_SIZE,
    Batch,
    MeasuredSizes,
    Speeds,
)
from orchestrator.search.model.cost_line import CostLine

Splits = Mapping[Batch, BatchMeasurement]
"""Batches with the same effective batch -> their measurements."""


def promising_split(
    sizes: MeasuredSizes, effective_batch: int, tolerance: float
) -> Iterator[Batch]:
    """The split of the effective batch that is predicted to be the fastest, of about equal ones
    that with the fewest passes; none unless it beats the best measured one by more than the
    tolerance."""
    splits = sizes.splits_of(effective_batch)
    best = fastest(split for split in splits.values() if split.fits)
    predicted = _predicted_speeds(sizes, splits, effective_batch, is_any_known=best is not None)
    highest = max(predicted.values(), default=0.0)
    # A gain within the tolerance is not worth a trial.
    if predicted and (best is None or highest > best.speed * (1 + tolerance)):
        enough = (1 - tolerance) * highest
        # The largest micro-batch needs the fewest passes.
        yield max(split for split, speed in predicted.items() if speed >= enough)


def _predicted_speeds(
    sizes: MeasuredSizes, splits: Splits, effective_batch: int, *, is_any_known: bool
) -> dict[Batch, float]:
    """The splits that may fit and were not measured, with their predicted samples per second."""
    speeds = sizes.speeds
    if not speeds:
        return {}
    # Before a split was measured, the optimizer's time counts as 0. Every pass is then predicted to
    # take as long as a whole step without accumulation.
    accumulated = [own for own in splits.values() if own.accumulation > 1 and own.fits]
    optimizer = optimizer_seconds(speeds, accumulated) if is_any_known else 0.0
    unmeasured = _unmeasured(max(speeds), splits, effective_batch)
    return {split: accumulated_speed(speeds, *split, optimizer) for split in unmeasured}


def _unmeasured(largest: int, splits: Splits, effective_batch: int) -> Iterator[Batch]:
    """The exact splits of the effective batch that may fit and were not measured."""
    limit = _largest_to_accumulate(splits)
    for size in range(1, largest + 1):
        passes, rest = divmod(effective_batch, size)
        split = Batch(size, passes)
        may_fit = passes == 1 or size <= limit
        if rest == 0 and may_fit and split not in splits:
            yield split


def _largest_to_accumulate(splits: Splits) -> float:
    """The largest micro-batch that may fit with accumulation, as far as failures show; 0 after one
    for a reason that smaller micro-batches share."""
    limits = [math.inf]
    for split, own in splits.items():
        if split.accumulation > 1 and not own.fits:
            limits.append(split.micro_batch - 1 if own.outcome in FAILED_BY_ITS_SIZE else 0)
    return min(limits)


def accumulated_speed(
    speeds: Speeds, micro_batch: int, accumulation: int, optimizer_seconds: float = 0.0
) -> float:
    """Predicted samples per second with accumulation, from speeds without accumulation. A step of n
    passes runs its optimizer once, and the optimizer's time is at most what a pass takes beyond the
    time of its samples. One sample takes as long as at large sizes."""
    seconds = pass_seconds(speeds, micro_batch)
    of_samples = micro_batch * _seconds(speeds).slope
    once = min(optimizer_seconds, max(0.0, seconds - of_samples))
    return micro_batch * accumulation / (accumulation * (seconds - once) + once)


def optimizer_seconds(speeds: Speeds, accumulated: Iterable[BatchMeasurement]) -> float:
    """An upper bound of the seconds that a step spends on its optimizer: the time of a large size
    without that of its samples, or the time that measured accumulation saved."""
    line = _seconds(speeds)
    bounds = [float(line.costs[-1] - line.slope * line.sizes[-1])]
    for own in accumulated:
        # n steps without accumulation run the optimizer n times, and one with n passes runs it
        # once. So the saved time is n - 1 times that of the optimizer.
        unsaved = own.accumulation * pass_seconds(speeds, own.micro_batch)
        taken = own.micro_batch * own.accumulation / own.speed
        bounds.append((unsaved - taken) / (own.accumulation - 1))
    return max(0.0, min(bounds))


def _seconds(speeds: Speeds) -> CostLine:
    """The seconds of a step without accumulation."""
    return CostLine.of({size: size / speed for size, speed in speeds.items()})


def pass_seconds(speeds: Speeds, micro_batch: int) -> float:
    """Predicted seconds of a step without accumulation, linear between measured sizes. Below the
    smallest size, a step takes as long as at that size. Above the largest, samples per second stay
    constant."""
    line = _seconds(speeds)
    seconds = float(np.interp(micro_batch, line.sizes, line.costs))
    return seconds * max(1.0, micro_batch / float(line.sizes[-1]))
