"""How well a speed repeats: how far another trial of the same configuration may be from it.

A trial's own interval (``samples_per_second_ci95``) says how well the mean of *its* steps is known.
A second trial of the same configuration differs by more than that: the host launches kernels at
another pace, the clocks differ, the GPU waits longer between two steps. How much more depends on
what sets the pace of the steps. It is fitted to configurations that were measured in several runs:

    python -m tests.benchmarks.tables repeatability docs/results/2026-11-2*
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.steady_state import CPU_ERROR, launch_bound_share, student_quantile
from orchestrator.storage.tables.rows import Row

MAX_WAIT_SHARE = 0.05
"""Up to this share of waiting for the host, the GPU sets the pace."""


class Pace(enum.StrEnum):
    """What sets the pace of a trial's steps."""

    GPU = "gpu"
    LAUNCHES = "launches"
    """The GPU waits for kernel launches in forward passes or updates. Tables from before 2026-11-22
    do not record that, so their rows count as launch-bound."""
    HOST = "host"
    """The GPU runs out of work after micro-batches."""
    CPU = "cpu"
    """There is no GPU."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The spread of trials of one configuration, each with an infinitely long measurement."""

    relative: float
    """Standard deviation of the step time, relative to it."""
    seconds: float
    """Standard deviation of the constant part of the step time: waiting for the host."""
    degrees_of_freedom: float
    """Of Student's t, which describes how far single trials stray."""


BETWEEN_TRIALS: Mapping[Pace, Variation] = {
    Pace.GPU: Variation(0.0023, 0.0024, 8.3),
    Pace.LAUNCHES: Variation(0.0121, 0.0080, 4.5),
    Pace.HOST: Variation(0.1884, 0.0017, 30.0),
    Pace.CPU: Variation(CPU_ERROR, 0.0, 8.0),
}
"""Printed by the command above, which leaves out rows of unknown pace. The figures of ``Pace.CPU``
are an assumption: no recorded run is without a GPU."""

BETWEEN_RUNS = 0.0070
"""Standard deviation of what all GPU-bound rows of two runs share in the logarithm of their speed
ratio: GPUs of one model are not equally fast. Printed by the same command."""

BETWEEN_TECHNIQUES = 0.0043
"""Standard deviation, beyond ``BETWEEN_RUNS``, of what the GPU-bound rows of one technique share
against all others: other clocks cost some techniques more. Printed by the same command."""


def pace_of(row: Row) -> Pace:
    """What sets the pace of a row's steps."""
    if not row.get("gpu_model"):
        return Pace.CPU
    if (row.get("host_bound_share") or 0.0) > MAX_WAIT_SHARE:
        return Pace.HOST
    if _launches_are_recorded(row) and launch_bound_share(row) <= MAX_WAIT_SHARE:
        return Pace.GPU
    return Pace.LAUNCHES


def is_pace_known(row: Row) -> bool:
    """Whether ``pace_of`` is what the row shows; old rows may be called launch-bound unseen."""
    return pace_of(row) is not Pace.LAUNCHES or _launches_are_recorded(row)


def _launches_are_recorded(row: Row) -> bool:
    return row.get("launch_bound_update_share") is not None


@dataclass(frozen=True, slots=True)
class SpeedError:
    """The uncertainty of a configuration's speed as that of the logarithm of its step time."""

    standard_error: float
    degrees_of_freedom: float

    @property
    def half_width95(self) -> float:
        """Half the 95 % interval of the speed, relative to it."""
        quantile: float = student_quantile(0.975, self.degrees_of_freedom)
        return self.standard_error * quantile


UNKNOWN_ERROR = SpeedError(math.inf, 1.0)
"""Of a speed without an interval."""


def speed_error(repeats: Sequence[Row]) -> SpeedError:
    """The uncertainty of the mean speed of one configuration's trials.

    Infinite where no trial says how well it knows its own mean step.
    """
    variances = [_variance(row) for row in repeats]
    degrees = min(BETWEEN_TRIALS[pace_of(row)].degrees_of_freedom for row in repeats)
    # The variance of the mean of independent trials.
    variance = sum(variances) / len(variances) ** 2
    return SpeedError(math.sqrt(variance), degrees)


def difference_error(before: SpeedError, after: SpeedError) -> SpeedError:
    """The uncertainty of the logarithm of the ratio of two independent speeds."""
    degrees = min(before.degrees_of_freedom, after.degrees_of_freedom)
    return SpeedError(math.hypot(before.standard_error, after.standard_error), degrees)


def _variance(row: Row) -> float:
    """Of the logarithm of a single trial's mean step time."""
    half_width = row.get("samples_per_second_ci95")
    if half_width is None:
        half_width = math.inf
    # A 95 % interval of a normal distribution reaches 1.96 standard errors.
    own_steps = half_width / 1.96
    between = BETWEEN_TRIALS[pace_of(row)]
    # The scatter between trials has a relative part and a constant one. Independent parts add
    # as squares; the constant one weighs less in a longer step.
    step_seconds = row["effective_batch"] / row["samples_per_second"]
    between_trials = math.hypot(between.relative, between.seconds / step_seconds)
    # The fitted steps take 30 ms and more. For shorter ones the constant part would exceed all that
    # was seen, so no row repeats worse than a host-bound one.
    between_trials = min(between_trials, BETWEEN_TRIALS[Pace.HOST].relative)
    variance: float = own_steps**2 + between_trials**2
    return variance
