"""Predicts memory and speed at any micro-batch from a few measured sizes."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from orchestrator.analysis.batch_size import BatchMeasurement

Curve = Mapping[int, float]
"""Micro-batch -> bytes, seconds, or samples per second, as measured."""


def bytes_at(memory: Curve, micro_batch: int) -> float:
    """Predicted bytes at a micro-batch, from at least one measured size.

    Memory grows linearly with the micro-batch once activations take more than the optimizer's step.
    If the measured sizes are too small to show the slope, the line is too flat, never too steep.
    """
    size, slope = _line_at(memory, micro_batch)
    return memory[size] + slope * (micro_batch - size)


def largest_within(memory: Curve, limit_bytes: float) -> float:
    """The largest micro-batch whose predicted memory is within a limit.

    Infinite if memory does not grow.
    """
    within = [micro_batch for micro_batch, needed in memory.items() if needed <= limit_bytes]
    size, slope = _line_at(memory, max(within, default=0))
    if slope <= 0 or limit_bytes == math.inf:
        return math.inf
    # Rounded down: a part of a sample does not fit.
    return size + math.floor((limit_bytes - memory[size]) / slope)


def _line_at(costs: Curve, micro_batch: int) -> tuple[int, float]:
    """The line between two measured neighbors, as the lower size and the cost of one more sample.

    Outside of the measured sizes, it is the line through the largest.
    """
    below = max((size for size in costs if size <= micro_batch), default=0)
    above = min((size for size in costs if size > micro_batch), default=0)
    if below and above:
        return below, _slope(costs, below, above)
    return _line(costs)


def _line(costs: Curve) -> tuple[int, float]:
    """The line through the largest size, as that size and the cost of one more sample.

    The second point of the line is at most half as large, if there is such a size. Then the
    allocator's rounding hardly changes the slope. A single size costs nothing without samples.
    """
    largest = max(costs)
    if len(costs) == 1:
        return largest, costs[largest] / largest
    half_or_less = [size for size in costs if 2 * size <= largest]
    return largest, _slope(costs, max(half_or_less, default=min(costs)), largest)


def _slope(costs: Curve, small: int, large: int) -> float:
    """The cost of one more sample between two sizes; 0 if the cost does not grow."""
    return max(0.0, (costs[large] - costs[small]) / (large - small))


def size_of_speed(speeds: Curve, below: int, above: int, wanted: float) -> float:
    """The micro-batch between two measured ones that is predicted to reach a speed between theirs.

    Each pass has a fixed cost, which its samples share: seconds per sample = per_pass / micro-batch
    + per_sample.
    """
    # Compute the two costs from two measured sizes. Then solve the formula for the micro-batch.
    slow = 1 / speeds[below]
    fast = 1 / speeds[above]
    per_pass = (slow - fast) / (1 / below - 1 / above)
    per_sample = fast - per_pass / above
    return per_pass / (1 / wanted - per_sample)


def accumulated_speed(
    speeds: Curve, micro_batch: int, accumulation: int, optimizer_seconds: float = 0.0
) -> float:
    """Predicted samples per second with accumulation, from speeds without accumulation.

    A step of n passes runs its optimizer once: seconds = n × (pass - optimizer) + optimizer. The
    optimizer's time is at most what a pass takes beyond the time of its samples. One sample takes
    as long as at large sizes.
    """
    seconds = pass_seconds(speeds, micro_batch)
    _, per_sample = _line(_seconds(speeds))
    once = min(optimizer_seconds, max(0.0, seconds - micro_batch * per_sample))
    return micro_batch * accumulation / (accumulation * (seconds - once) + once)


def optimizer_seconds(speeds: Curve, accumulated: Iterable[BatchMeasurement]) -> float:
    """An upper bound of the seconds that a step spends on its optimizer.

    There are two kinds of bounds: the time of a large size without that of its samples, and the
    time that measured accumulation saved.
    """
    seconds = _seconds(speeds)
    size, per_sample = _line(seconds)
    bounds = [seconds[size] - per_sample * size]
    for own in accumulated:
        # n steps without accumulation run the optimizer n times, and one with n passes runs it
        # once. So the saved time is n - 1 times that of the optimizer.
        unsaved = own.accumulation * pass_seconds(speeds, own.micro_batch)
        taken = own.micro_batch * own.accumulation / own.speed
        bounds.append((unsaved - taken) / (own.accumulation - 1))
    return max(0.0, min(bounds))


def _seconds(speeds: Curve) -> Curve:
    """Micro-batch -> seconds of a step without accumulation."""
    return {size: size / speed for size, speed in speeds.items()}


def pass_seconds(speeds: Curve, micro_batch: int) -> float:
    """Predicted seconds of a step without accumulation, linear between measured sizes.

    Below the smallest size, a step takes as long as at that size. Above the largest, samples per
    second stay constant.
    """
    sizes = sorted(speeds)
    seconds = float(np.interp(micro_batch, sizes, [size / speeds[size] for size in sizes]))
    return seconds * max(1.0, micro_batch / sizes[-1])
