"""Toward the fastest micro-batch, and toward the saturation: the smallest that is about as fast."""

from __future__ import annotations

import math
from itertools import pairwise

from orchestrator.analysis.batch_size import fastest, saturation
from orchestrator.search.batch_size.largest_size import ALIGNMENT, GROWTH
from orchestrator.search.batch_size.measured_sizes import Batch, MeasuredSizes
from orchestrator.search.batch_size.scaling_fit import size_of_speed

_NEIGHBOR_RATIO = 2.0
"""The measured neighbors of the fastest size are within this ratio of it."""
_SATURATION_RATIO = 1.5
"""The saturation is settled when the next smaller measured size is within this ratio of it."""
_PREDICTED_RATIO = 1.2
"""The saturation is also settled within this ratio of the size at which it is predicted."""
_MIN_STEP_UP = 1.25
"""The saturation is looked for at least this many times above a size that is too slow."""


def next_near_fastest(sizes: MeasuredSizes, tolerance: float) -> int | None:
    """A size between the fastest size and a neighbor that is slower and far away.

    None if there is no such neighbor, or no size between the two that is still to be measured.

    ``tolerance`` is the share by which speeds may differ and still count as equal.
    """
    fitting = sizes.fitting
    best = fastest(fitting.values())
    if best is None:
        return None
    for below, above in pairwise(sorted(fitting)):
        is_neighbor = best.micro_batch in (below, above)
        # Between two sizes of equal speed there is nothing to find.
        slower = min(fitting[below].speed, fitting[above].speed)
        is_slower = slower < (1 - tolerance) * best.speed
        if is_neighbor and is_slower and above > _NEIGHBOR_RATIO * below:
            size = _size_between(sizes, tolerance, below, above)
            if size is not None and Batch(size) not in sizes:
                return size
    return None


def _size_between(sizes: MeasuredSizes, tolerance: float, below: int, above: int) -> int | None:
    """The predicted saturation if the larger size is the fastest, else the geometric mean."""
    best = fastest(sizes.fitting.values())
    if best is not None and above == best.micro_batch:
        predicted = _predicted_saturation(sizes, tolerance, below, above)
        if predicted is not None:
            return _size_near(predicted, below, above)
    # Micro-batches are searched in ratios, so the middle is the geometric one.
    return _size_near(math.sqrt(below * above), below, above)


def next_near_saturation(sizes: MeasuredSizes, tolerance: float) -> int | None:
    """A size at which the saturation is predicted; None if the saturation is settled.

    ``tolerance`` is the share below the highest speed that still counts as saturated.
    """
    fitting = sizes.fitting
    saturated = saturation(tuple(fitting.values()), tolerance)
    if saturated is None or saturated.micro_batch == 1:
        return None
    # The saturation lies between the smallest fast size and the next smaller size, which is slow.
    above = saturated.micro_batch
    smaller = [size for size in fitting if size < above]
    below = max(smaller, default=0)
    if not below:
        return max(1, above // GROWTH)
    predicted = _predicted_saturation(sizes, tolerance, below, above)
    if predicted is None or above <= _SATURATION_RATIO * below:
        return None
    size = _size_near(predicted, below, above)
    if size is None or above <= _PREDICTED_RATIO * size:
        return None
    return size


def _predicted_saturation(
    sizes: MeasuredSizes, tolerance: float, below: int, above: int
) -> float | None:
    """Where the speed comes within the tolerance of the fastest.

    None if that is not between the two sizes.
    """
    best = fastest(sizes.fitting.values())
    if best is None:
        return None
    speeds = sizes.speeds
    wanted = (1 - tolerance) * best.speed
    if not speeds[below] < wanted <= speeds[above]:
        return None
    # A size just above the slow one would be slow as well, so the prediction is moved up.
    return max(size_of_speed(speeds, below, above, wanted), below * _MIN_STEP_UP)


def _size_near(wanted: float, below: int, above: int) -> int | None:
    """A size near ``wanted``, strictly between the two others; None if there is none.

    It is a multiple of ``ALIGNMENT`` if there is one.
    """
    # A multiple of the alignment above or below the wanted size, else any whole number.
    for unit in (ALIGNMENT, 1):
        size = math.ceil(wanted / unit) * unit
        for candidate in (size, size - unit):
            if below < candidate < above:
                return candidate
    return None
