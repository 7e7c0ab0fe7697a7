"""When training runs steadily, and when its mean step is known well enough."""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.flags import Flag, FlagKind

MIN_STEPS = 2
"""Fewer counted steps never settle the mean step."""

PRIOR_SPREAD = 0.0066
"""The usual standard deviation of a trial's steps, as a share of their mean. Fitted on 2026-11-23
to the 1,080 GPU-bound trials then recorded (commit dffe452), because later ones ended sooner by
this very prior."""
PRIOR_SECONDS = 0.005
"""The same in seconds: a host's disturbances take milliseconds. The smaller of the two counts."""

CPU_ERROR = 0.05
"""Without a GPU the mean step need not be known better, because other programs take turns."""
MIN_SECONDS = 1.0
"""With fewer counted seconds no trial is given up as unstable, and without a GPU none is settled: a
few short steps may fall between two turns of another program."""
MIN_STEPS_TO_GIVE_UP = 4
"""With fewer counted steps no trial is given up as unstable: they say little about the spread."""

GPU_BOUND = 0.1
"""The GPU sets the pace if it ran out of work after at most this share of the micro-batches."""
HOST_BOUND = 0.5
"""The host sets the pace if the GPU ran out of work after more than this share of them."""

NEW_LENGTHS = 0.1
"""A row is flagged if lengths that are new take more than this share of an epoch's time."""


def relative_half_width(values: Sequence[float], intervals: int = 1) -> float:
    """Half the 95 % interval of the mean, relative to it; infinite for fewer than two values.
    ``intervals``: so many such intervals hold their means all together in 95 of 100 cases, by
    Bonferroni's inequality."""
    if len(values) < 2:
        return math.inf
    # The standard error of a mean of n independent values: their standard deviation / sqrt(n).
    standard_error = statistics.stdev(values) / math.sqrt(len(values))
    quantile = student_quantile(1 - 0.025 / intervals, len(values) - 1)
    return quantile * standard_error / statistics.fmean(values)


def mean_step_error(seconds: Sequence[float], count: int | None = None) -> float:
    """Half the 95 % interval of the mean step, relative to it; infinite for fewer than two steps.

    ``count``: of so many steps that vary like these. A scaled inverse chi-squared posterior of the
    variance combines the steps' sum of squares with the usual spread of trials, which has the
    weight of one degree of freedom. Source: Gelman et al., Bayesian Data Analysis, 3rd ed., 2.6.
    """
    if len(seconds) < MIN_STEPS:
        return math.inf
    # All variances are relative to the squared mean, so that trials of any speed compare.
    mean = statistics.fmean(seconds)
    prior = min(PRIOR_SPREAD, PRIOR_SECONDS / mean)
    sum_of_squares = (len(seconds) - 1) * statistics.variance(seconds) / mean**2
    # The prior has one degree of freedom and the steps n - 1: together n.
    variance = (prior**2 + sum_of_squares) / len(seconds)
    count = count or len(seconds)
    return student_t95(count) * math.sqrt(variance / count)


def wanted_error(relative_error: float, device_type: str) -> float:
    """How well to know the mean step (0: run every step). On a CPU 1 % is out of reach."""
    if relative_error == 0 or device_type != "cpu":
        return relative_error
    return max(relative_error, CPU_ERROR)


def steady_from(seconds: Sequence[float], relative_error: float) -> int:
    """Index of the first step in the range of the later half; 0 if ``relative_error`` is 0."""
    # The later half shows what is usual; of three steps or fewer, the last two.
    later = seconds[min(len(seconds) // 2, len(seconds) - MIN_STEPS) :]
    if not later or relative_error == 0:
        return 0
    # The range is widened by the error that is tolerated anyway.
    low = min(later) * (1 - relative_error)
    high = max(later) * (1 + relative_error)
    return next(index for index, value in enumerate(seconds) if low <= value <= high)


def are_enough(
    seconds: Sequence[float], relative_error: float, limit: int, host_bound_share: float
) -> bool:
    """Whether no further step is worth its time."""
    return (
        is_settled(seconds, relative_error)
        or is_enough_of_the_host(seconds, relative_error, host_bound_share)
        or is_out_of_reach(seconds, relative_error, limit)
    )


def is_settled(seconds: Sequence[float], relative_error: float) -> bool:
    """Whether the mean of the steady steps is known to within ``relative_error`` (0: never)."""
    steady = seconds[steady_from(seconds, relative_error) :]
    return len(steady) >= MIN_STEPS and mean_step_error(steady) <= relative_error


def is_enough_of_the_host(
    seconds: Sequence[float], relative_error: float, host_bound_share: float
) -> bool:
    """Whether the host sets the pace and there are enough steady steps, however much they vary."""
    steady_steps = len(seconds) - steady_from(seconds, relative_error)
    return host_bound_share > HOST_BOUND and steady_steps >= 5  # more would follow its load


def is_out_of_reach(seconds: Sequence[float], relative_error: float, limit: int) -> bool:
    """Whether ``limit`` such steps would not settle the mean; False if the trial ran briefly."""
    first = steady_from(seconds, relative_error)
    steady = seconds[first:]
    if len(steady) < MIN_STEPS_TO_GIVE_UP or sum(steady) < MIN_SECONDS:
        return False
    return mean_step_error(steady, limit - first) > relative_error


def launch_bound_share(row: Mapping[str, Any]) -> float:
    """The share of a row's time that the GPU waited for kernel launches, at most; 0: not known."""
    # A table has null if it was not measured.
    parts = ("forward", "backward", "update")
    return float(sum(row.get(f"launch_bound_{part}_share") or 0.0 for part in parts))


def data_wait_share(row: Mapping[str, Any]) -> float:
    """The share of a row's time that the GPU waited for data; 0: not known, or no GPU."""
    # A loop that runs ahead fetches data while the GPU computes, so the gap is the limit.
    waits = [row.get(name) or 0.0 for name in ("data_seconds_median", "step_gap_seconds_median")]
    return min(1.0, min(waits) / (row.get("step_seconds_median") or math.inf))


def flags(
    *,
    half_width: float,
    relative_error: float,
    host_bound_share: float | None = None,
    launch_bound_share: float = 0.0,
    data_wait_share: float = 0.0,
    allocator_retries: int = 0,
    new_shapes_share: float = 0.0,
) -> list[Flag]:
    """What to know before trusting a row's speed; empty if there is nothing."""
    raised = []
    # Up to 1 % is steady for a reader, however small an error was asked for.
    if relative_error and half_width > max(relative_error, 0.01):
        # An infinite uncertainty is no figure.
        raised.append(Flag(FlagKind.UNSTABLE, half_width if math.isfinite(half_width) else None))
    # A host that sets the pace explains the waits for kernel launches, too: one flag is enough.
    if host_bound_share is not None and host_bound_share > HOST_BOUND:
        raised.append(Flag(FlagKind.HOST_BOUND, host_bound_share))
    elif launch_bound_share > GPU_BOUND:
        raised.append(Flag(FlagKind.LAUNCH_BOUND, launch_bound_share))
    if data_wait_share > GPU_BOUND:
        raised.append(Flag(FlagKind.DATA_BOUND, data_wait_share))
    if allocator_retries >= 2:  # a single flush is not thrashing
        raised.append(Flag(FlagKind.THRASHING, allocator_retries))
    if new_shapes_share > NEW_LENGTHS:
        raised.append(Flag(FlagKind.NEW_LENGTHS, new_shapes_share))
    return raised


@functools.lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The value that a Student's t variable stays below with this probability."""
    from scipy.special import stdtrit  # scipy.stats takes ten times as long to import

    return float(stdtrit(degrees_of_freedom, probability))


def student_t95(degrees_of_freedom: float) -> float:
    """Half the width of a 95 % interval of Student's t."""
    # 95 % in the middle leave 2.5 % on each side.
    return student_quantile(0.975, degrees_of_freedom)
