"""How memory and speed scale with the micro-batch: what a few measured sizes tell of others, to choose the next one."""

from __future__ import annotations

import math
from collections.abc import Mapping

Curve = Mapping[int, float]
"""Micro-batch -> bytes, seconds or samples per second, as measured."""


def bytes_at(memory: Curve, micro_batch: int) -> float:
    """Memory is affine in the micro-batch once activations outgrow the optimizer's step: linear between measured
    sizes; beyond the largest along the line through it and one of at most half its size, so that an allocator's
    rounding does not tilt it.

    Sizes too small to show that slope make it too flat, never too steep. Needs two sizes.
    """
    below = max((size for size in memory if size <= micro_batch), default=0)
    above = min((size for size in memory if size >= micro_batch), default=0)
    if below and above > below:
        return memory[below] + _slope(memory, below, above) * (micro_batch - below)
    at, slope = _line(memory)
    return memory[at] + slope * (micro_batch - at)


def largest_within(memory: Curve, limit_bytes: float) -> float:
    """The largest size whose predicted memory is within a limit; infinite where memory does not grow."""
    at, slope = _line(memory)
    within = max((size for size, needed in memory.items() if needed <= limit_bytes), default=0)
    over = min((size for size in memory if size > within), default=0)
    if within and over:
        at, slope = within, _slope(memory, within, over)
    return (
        at + math.floor((limit_bytes - memory[at]) / slope)
        if slope > 0 and limit_bytes < math.inf
        else math.inf
    )


def _line(costs: Curve) -> tuple[int, float]:
    """The size to start from, and what a sample adds (0 where a cost does not grow)."""
    at = max(costs)
    smaller = [size for size in costs if size < at]
    other = max((size for size in smaller if 2 * size <= at), default=min(smaller))
    return at, _slope(costs, other, at)


def _slope(costs: Curve, small: int, large: int) -> float:
    return max(0.0, (costs[large] - costs[small]) / (large - small))


def size_of_speed(speeds: Curve, below: int, above: int, wanted: float) -> float:
    """The size between two measured ones where a speed is reached, as seconds a sample fall with 1 / micro-batch:
    a cost of each pass spread over its samples. ``wanted`` lies between their speeds."""
    slow, fast = 1 / speeds[below], 1 / speeds[above]
    per_pass = (slow - fast) / (1 / below - 1 / above)
    return per_pass / (1 / wanted - (fast - per_pass / above))


def accumulated_speed(
    speeds: Curve, micro_batch: int, accumulation: int, once: float = 0.0
) -> float:
    """Samples per second with accumulation, from speeds without; ``once`` is what each of those steps spent on its
    optimizer, in seconds: at most what its samples, at the rate of large sizes, leave of it."""
    seconds = seconds_of_a_pass(speeds, micro_batch)
    a_sample = _line(_seconds(speeds))[1] if len(speeds) > 1 else 0.0
    once = min(once, max(0.0, seconds - micro_batch * a_sample))
    return micro_batch * accumulation / (accumulation * (seconds - once) + once)


def optimizer_seconds(speeds: Curve, accumulated: Mapping[tuple[int, int], float]) -> float:
    """At most so many seconds of a step are the optimizer's: what steps cost beside their samples, as large sizes
    tell it, and what was saved by accumulation ((micro-batch, accumulation) -> samples per second)."""
    seconds = _seconds(speeds)
    bounds = [0.0]
    if len(seconds) > 1:
        at, slope = _line(seconds)
        bounds = [seconds[at] - slope * at]
    for (size, passes), speed in accumulated.items():
        bounds.append(
            (passes * seconds_of_a_pass(speeds, size) - size * passes / speed) / (passes - 1)
        )
    return max(0.0, min(bounds))


def _seconds(speeds: Curve) -> Curve:
    """Of a step."""
    return {size: size / speed for size, speed in speeds.items()}


def seconds_of_a_pass(speeds: Curve, micro_batch: int) -> float:
    """Seconds of a step of one pass: linear between measured sizes, no less below them, at the same speed above."""
    sizes = sorted(speeds)
    inside = min(max(micro_batch, sizes[0]), sizes[-1])
    above = next(size for size in sizes if size >= inside)
    below = max(size for size in sizes if size <= inside)
    seconds = below / speeds[below]
    if above > below:
        seconds += (above / speeds[above] - seconds) * (inside - below) / (above - below)
    return seconds * max(micro_batch, inside) / inside
