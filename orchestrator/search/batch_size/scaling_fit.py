"""Predicts memory and speed at any micro-batch from a few measured sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.search.batch_size.measured_sizes import Batch

Curve = Mapping[int, float]
"""Micro-batch -> bytes, seconds, or samples per second, as measured."""


def bytes_at(memory: Curve, micro_batch: int) -> float:
    """Predicted bytes at a micro-batch, from at least two measured sizes.

    Memory grows linearly with the micro-batch once activations take more than the optimizer's step.
    So the prediction is linear between measured sizes, and follows ``_line`` beyond the largest.
    If the measured sizes are too small to show the slope, the line is too flat, never too steep.
    """
    no_larger = [size for size in memory if size <= micro_batch]
    no_smaller = [size for size in memory if size >= micro_batch]
    below = max(no_larger, default=0)
    above = min(no_smaller, default=0)
    # Between two measured sizes: linear interpolation.
    if below and above > below:
        return memory[below] + _slope(memory, below, above) * (micro_batch - below)
    # Outside of the measured sizes, use the line through the largest.
    size, slope = _line(memory)
    return memory[size] + slope * (micro_batch - size)


def largest_within(memory: Curve, limit_bytes: float) -> float:
    """The largest micro-batch whose predicted memory is within a limit.

    Infinite if memory does not grow.
    """
    size, slope = _line(memory)
    within = [micro_batch for micro_batch, needed in memory.items() if needed <= limit_bytes]
    fits = max(within, default=0)
    beyond = [micro_batch for micro_batch in memory if micro_batch > fits]
    too_large = min(beyond, default=0)
    # If the limit lies between two measured sizes, their own slope says more than the line.
    if fits and too_large:
        size = fits
        slope = _slope(memory, fits, too_large)
    if slope <= 0 or limit_bytes == math.inf:
        return math.inf
    # Rounded down: a part of a sample does not fit.
    return size + math.floor((limit_bytes - memory[size]) / slope)


def _line(costs: Curve) -> tuple[int, float]:
    """A line through the largest size, as that size and the cost of one more sample.

    The second point of the line is at most half as large, if there is such a size. Then the
    allocator's rounding hardly changes the slope.
    """
    # Two points make the line: the largest size, and one that is clearly smaller.
    largest = max(costs)
    half_or_less = [size for size in costs if 2 * size <= largest]
    other = max(half_or_less, default=min(costs))
    return largest, _slope(costs, other, largest)


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
    per_sample = 0.0
    if len(speeds) > 1:
        _, per_sample = _line(_seconds(speeds))
    # The optimizer takes at most the time of a pass without its samples.
    once = min(optimizer_seconds, max(0.0, seconds - micro_batch * per_sample))
    return micro_batch * accumulation / (accumulation * (seconds - once) + once)


def optimizer_seconds(speeds: Curve, accumulated: Mapping[Batch, float]) -> float:
    """An upper bound of the seconds that a step spends on its optimizer.

    ``accumulated`` maps batches to samples per second. There are two kinds of bounds: the time of a
    large size without that of its samples, and the time that measured accumulation saved.
    """
    seconds = _seconds(speeds)
    bounds = [0.0]
    # The time of a pass of the largest size, without the time of its samples.
    if len(seconds) > 1:
        size, per_sample = _line(seconds)
        bounds = [seconds[size] - per_sample * size]
    for batch, speed in accumulated.items():
        # n steps without accumulation run the optimizer n times, and one with n passes runs it
        # once. So the saved time is n - 1 times that of the optimizer.
        unsaved = batch.accumulation * pass_seconds(speeds, batch.micro_batch)
        bounds.append((unsaved - batch.effective / speed) / (batch.accumulation - 1))
    return max(0.0, min(bounds))


def _seconds(speeds: Curve) -> Curve:
    """Micro-batch -> seconds of a step without accumulation."""
    return {size: size / speed for size, speed in speeds.items()}


def pass_seconds(speeds: Curve, micro_batch: int) -> float:
    """Predicted seconds of a step without accumulation, linear between measured sizes.

    Below the smallest size, a step takes as long as at that size. Above the largest, samples per
    second stay constant.
    """
    inside = min(max(micro_batch, min(speeds)), max(speeds))
    above = min(size for size in speeds if size >= inside)
    below = max(size for size in speeds if size <= inside)
    seconds = below / speeds[below]
    # Linear interpolation between the measured neighbors.
    if above > below:
        seconds += (above / speeds[above] - seconds) * (inside - below) / (above - below)
    # Beyond the largest size, seconds grow with the samples.
    return seconds * max(micro_batch, inside) / inside
