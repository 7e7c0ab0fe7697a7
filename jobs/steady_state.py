"""When training runs steadily, and when enough of that was measured: the mean step's confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

FEWEST_STEPS = 2
"""No measurement ends with fewer counted steps."""

USUAL_SPREAD, USUAL_SECONDS = 0.0066, 0.005
"""Standard deviation of a trial's steps, relative to their mean, but no longer than the second: a host's disturbances
take milliseconds, however long the step. Fitted to the tables in docs/results by ``python -m tests.benchmarks.spread``,
as is its weight, one degree of freedom: trials are that unlike each other."""

FEWEST_TO_GIVE_UP, SECONDS_TO_GIVE_UP = 4, 1.0
"""None is given up as unstable with fewer counted steps or seconds: a spread seen in fewer says little."""

GPU_BOUND, HOST_BOUND = 0.1, 0.5
"""A speed is the GPU's own where it ran dry after no larger a share of the micro-batches, or in parts of a step of no
larger a share of the time (``starved_share``), than the first; and the host's where after a larger share of them than
the second."""

FEWEST_OF_THE_HOST = 5
"""Steps after which a speed that is the host's is not polished further: more of them tell of the host's next second."""

# Two-sided 95 % quantiles of Student's t for 1, 2, 3 ... degrees of freedom; beyond them, close enough to 2.
_T95 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
)


def relative_half_width(values: Sequence[float]) -> float:
    """Half the 95 % confidence interval (Student's) of the mean, relative to it; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    return (
        _t95(len(values) - 1)
        * statistics.stdev(values)
        / math.sqrt(len(values))
        / statistics.fmean(values)
    )


def mean_step_error(seconds: Sequence[float]) -> float:
    """Half the 95 % interval of the mean step, relative to it; infinite for fewer than two steps.

    What they spread by, and what steps usually do: few that happen to be alike prove little, and two long ones much.
    """
    return _error_of(len(seconds), seconds)


def onset(seconds: Sequence[float], relative_error: float) -> int:
    """How many of the first steps are not steady yet: at most half, and all but two, those that lie outside what the
    later half of the steps range over by more than ``relative_error``. With 0 every step counts."""
    later = seconds[min(len(seconds) // 2, len(seconds) - FEWEST_STEPS) :]
    if not later or relative_error == 0:
        return 0
    low, high = min(later) * (1 - relative_error), max(later) * (1 + relative_error)
    return next(first for first, one in enumerate(seconds) if low <= one <= high)


def are_enough(
    seconds: Sequence[float], relative_error: float, limit: int, host_bound_share: float
) -> bool:
    """Whether no further step is worth its time: the steady ones tell the mean to within ``relative_error``, or tell
    enough of a speed that is the host's, or ``limit`` steps would not tell it either."""
    return (
        is_settled(seconds, relative_error)
        or is_the_hosts(seconds, relative_error, host_bound_share)
        or is_out_of_reach(seconds, relative_error, limit)
    )


def is_settled(seconds: Sequence[float], relative_error: float) -> bool:
    """Whether the mean of the steady ones of these steps is known to within ``relative_error`` (0: never)."""
    steady = seconds[onset(seconds, relative_error) :]
    return len(steady) >= FEWEST_STEPS and mean_step_error(steady) <= relative_error


def is_the_hosts(seconds: Sequence[float], relative_error: float, host_bound_share: float) -> bool:
    """Whether these steps tell enough of a speed that is the host's, however unlike they are."""
    return (
        host_bound_share > HOST_BOUND
        and len(seconds) - onset(seconds, relative_error) >= FEWEST_OF_THE_HOST
    )


def is_out_of_reach(seconds: Sequence[float], relative_error: float, limit: int) -> bool:
    """Whether ``limit`` steps would not tell the mean of the steady ones to within ``relative_error`` either, should
    they go on to spread as these. Only of steps that took long: of others, all cost less than another trial."""
    first = onset(seconds, relative_error)
    steady = seconds[first:]
    few = len(steady) < FEWEST_TO_GIVE_UP or sum(steady) < SECONDS_TO_GIVE_UP
    return not few and _error_of(limit - first, steady) > relative_error


def starved_share(figures: Mapping[str, Any]) -> float:
    """At most so much of a row's time the GPU waited for the host in a step, which it ended with work to do; 0 where it
    is not told."""
    return float(sum(figures.get(f"starved_{part}_share") or 0.0 for part in ("forward", "update")))


def doubts(
    *,
    half_width: float,
    relative_error: float,
    host_bound_share: float | None = None,
    starved_share: float = 0.0,
    allocator_retries: int = 0,
) -> list[str]:
    """What a reader should know before trusting a row's speed, in words; empty when there is nothing."""
    found = []
    if relative_error and half_width > max(relative_error, 0.01):
        known = (
            f"the mean step is known to ±{half_width:.1%} only"
            if half_width < math.inf
            else "a single step counted"
        )
        found.append(f"unstable: {known}")
    if host_bound_share is not None and host_bound_share > HOST_BOUND:
        found.append(
            "host-bound: the GPU ran dry after most micro-batches, so the host's speed was measured"
        )
    elif starved_share > GPU_BOUND:
        found.append(
            "partly host-bound: forward passes and updates that the GPU was done with as soon as they were launched"
            f" took {starved_share:.0%} of the time"
        )
    if allocator_retries >= 2:
        found.append(f"thrashing: the allocator had to flush its cache {allocator_retries} times")
    return found


def _error_of(count: int, like: Sequence[float]) -> float:
    """Half the 95 % interval of the mean of ``count`` steps that spread like these, relative to it: Student's, of their
    spread and the usual one, which is worth one degree of freedom (a scaled inverse chi-squared prior)."""
    if len(like) < FEWEST_STEPS:
        return math.inf
    mean = statistics.fmean(like)
    usual = min(USUAL_SPREAD, USUAL_SECONDS / mean)
    own = (len(like) - 1) * statistics.variance(like) / mean**2
    return _t95(count) * math.sqrt((usual**2 + own) / len(like) / count)


def _t95(freedom: int) -> float:
    return _T95[freedom - 1] if freedom <= len(_T95) else 2.0
