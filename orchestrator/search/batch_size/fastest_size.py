"""Toward the fastest micro-batch, and toward the saturation: the smallest that is about as fast."""

import math
from collections.abc import Iterator
from itertools import pairwise

from orchestrator.analysis.batch_size_answer import fastest, saturation
from orchestrator.search.batch_size.largest_size import ALIGNMENT, GROWTH
from orchestrator.search.batch_size.measured_sizes import MeasuredSizes, Speeds

_NEIGHBOR_RATIO = 2.0
"""The measured neighbors of the fastest size are within this ratio of it."""
_SATURATION_RATIO = 1.5
"""The saturation is settled when the next smaller measured size is within this ratio of it."""
_PREDICTED_RATIO = 1.2
"""The saturation is also settled within this ratio of the size at which it is predicted."""
_MIN_STEP_UP = 1.25
"""The saturation is looked for at least this many times above a size that is too slow."""


def near_fastest(sizes: MeasuredSizes, tolerance: float) -> Iterator[int]:
    """Sizes between the fastest size and each neighbor that is slower and far away."""
    speeds = sizes.speeds
    best = fastest(sizes.fitting.values())
    if best is None:
        return
    saturated = (1 - tolerance) * best.speed
    for below, above in pairwise(sorted(speeds)):
        is_neighbor = best.micro_batch in (below, above)
        # Between two sizes of equal speed there is nothing to find.
        is_slower = min(speeds[below], speeds[above]) < saturated
        if is_neighbor and is_slower and above > _NEIGHBOR_RATIO * below:
            # Micro-batches are searched in ratios, so the middle is the geometric one.
            wanted = math.sqrt(below * above)
            if above == best.micro_batch:
                wanted = _predicted_saturation(speeds, below, above, saturated)
            yield from _size_near(wanted, below, above)


def near_saturation(sizes: MeasuredSizes, tolerance: float) -> Iterator[int]:
    """A size at which the saturation is predicted; none if the saturation is settled."""
    fitting = sizes.fitting
    best = fastest(fitting.values())
    saturated = saturation(tuple(fitting.values()), tolerance)
    if best is None or saturated is None or saturated.micro_batch == 1:
        return
    # The saturation lies between the smallest fast size and the next smaller size, which is slow.
    above = saturated.micro_batch
    below = max((size for size in fitting if size < above), default=0)
    if not below:
        yield max(1, above // GROWTH)
    elif above > _SATURATION_RATIO * below:
        wanted = (1 - tolerance) * best.speed
        predicted = _predicted_saturation(sizes.speeds, below, above, wanted)
        for size in _size_near(predicted, below, above):
            if above > _PREDICTED_RATIO * size:
                yield size


def _predicted_saturation(speeds: Speeds, below: int, above: int, saturated: float) -> float:
    """Where a speed between those of two sizes is reached. A size just above the slow one would be
    slow as well, so the prediction is moved up."""
    return max(size_of_speed(speeds, below, above, saturated), below * _MIN_STEP_UP)


def _size_near(wanted: float, below: int, above: int) -> list[int]:
    """A size near ``wanted``, strictly between the two others, a multiple of ``ALIGNMENT`` if there
    is one."""
    candidates = []
    for unit in (ALIGNMENT, 1):
        size = math.ceil(wanted / unit) * unit
        candidates += [size, size - unit]
    return [size for size in candidates if below < size < above][:1]


def size_of_speed(speeds: Speeds, below: int, above: int, wanted: float) -> float:
    """The micro-batch between two measured ones that is predicted to reach a speed between theirs:
    seconds per sample = per_pass / micro-batch + per_sample."""
    # Compute the two costs from two measured sizes. Then solve the formula for the micro-batch.
    slow, fast = 1 / speeds[below], 1 / speeds[above]
    per_pass = (slow - fast) / (1 / below - 1 / above)
    per_sample = fast - per_pass / above
    return per_pass / (1 / wanted - per_sample)
