"""How memory and speed scale with the micro-batch, from a few measured sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.search.batch_size.measured_sizes import Batch

Curve = Mapping[int, float]
"""Micro-batch -> bytes, seconds, or samples per second, as measured."""


def bytes_at(memory: Curve, micro_batch: int) -> float:
    """Bytes at a micro-batch, from at least two measured sizes.

    Memory is affine in the micro-batch once activations outgrow the optimizer's step. So it is
    linear between measured sizes, and beyond the largest it follows ``_line``. Sizes that are too
    small to show the slope make it too flat, never too steep.
    """
    no_larger = [size for size in memory if size <= micro_batch]
    no_smaller = [size for size in memory if size >= micro_batch]
    below = max(no_larger, default=0)
    above = min(no_smaller, default=0)
    # Between two measured sizes: linear interpolation.
    if below and above > below:
        return memory[below] + _slope(memory, below, above) * (micro_batch - below)
    # Outside of them: the line through the largest size.
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
    """A line through the largest size: that size, and the cost of another sample.

    The second point is at most half as large, so that the rounding of an allocator does not tilt
    the line.
    """
    # Two points make the line: the largest size, and one that is clearly smaller.
    largest = max(costs)
    half_or_less = [size for size in costs if 2 * size <= largest]
    other = max(half_or_less, default=min(costs))
    return largest, _slope(costs, other, largest)


def _slope(costs: Curve, small: int, large: int) -> float:
    """Cost of another sample between two sizes; 0 if the cost does not grow."""
    return max(0.0, (costs[large] - costs[small]) / (large - small))


def size_of_speed(speeds: Curve, below: int, above: int, wanted: float) -> float:
    """The micro-batch between two measured ones that reaches a speed between theirs.

    A cost per pass is spread over the samples: seconds per sample = per_pass / micro-batch +
    per_sample.
    """
    # Two measured sizes determine the two costs; the law is then solved for the micro-batch.
    slow = 1 / speeds[below]
    fast = 1 / speeds[above]
    per_pass = (slow - fast) / (1 / below - 1 / above)
    per_sample = fast - per_pass / above
    return per_pass / (1 / wanted - per_sample)


def accumulated_speed(
    speeds: Curve, micro_batch: int, accumulation: int, optimizer_seconds: float = 0.0
) -> float:
    """Samples per second with accumulation, from speeds without.

    A step of n passes pays its optimizer once: seconds = n × (pass - optimizer) + optimizer. The
    optimizer takes no more of a pass than its samples, at the rate of large sizes, leave.
    """
    seconds = pass_seconds(speeds, micro_batch)
    per_sample = 0.0
    if len(speeds) > 1:
        _, per_sample = _line(_seconds(speeds))
    # What the pass has left besides its samples bounds the optimizer's time.
    once = min(optimizer_seconds, max(0.0, seconds - micro_batch * per_sample))
    return micro_batch * accumulation / (accumulation * (seconds - once) + once)


def optimizer_seconds(speeds: Curve, accumulated: Mapping[Batch, float]) -> float:
    """Seconds that a step spends on its optimizer, at most.

    ``accumulated`` maps batches to samples per second. Two kinds of bounds: what large sizes cost
    besides their samples, and what measured accumulation saved.
    """
    seconds = _seconds(speeds)
    bounds = [0.0]
    # What a pass of the largest size costs besides its samples.
    if len(seconds) > 1:
        size, per_sample = _line(seconds)
        bounds = [seconds[size] - per_sample * size]
    for batch, speed in accumulated.items():
        # Solved for the optimizer: n passes without accumulation pay it n times, with accumulation
        # once.
        unsaved = batch.accumulation * pass_seconds(speeds, batch.micro_batch)
        bounds.append((unsaved - batch.effective / speed) / (batch.accumulation - 1))
    return max(0.0, min(bounds))


def _seconds(speeds: Curve) -> Curve:
    """Micro-batch -> seconds of a step without accumulation."""
    return {size: size / speed for size, speed in speeds.items()}


def pass_seconds(speeds: Curve, micro_batch: int) -> float:
    """Seconds of a step without accumulation: linear between measured sizes.

    Below the smallest it is no shorter, and above the largest the speed stays.
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
