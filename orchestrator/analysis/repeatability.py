"""Repeatability: by how much the speeds of two trials of the same configuration can differ.

The interval of a single trial (``samples_per_second_ci95``) shows how well the mean of its own
steps is known. Another trial can differ by more, for example because its host launches kernels more
slowly. How much more depends on what limits the speed. A trial of another run differs further by a
factor that all rows of that run share, because its GPU and its host differ. The figures below were
fitted to configurations that were measured in several runs:

    python -m tests.benchmarks.tables repeatability docs/results/2026-11-2*
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from jobs.steady_state import CPU_ERROR, data_wait_share, launch_bound_share, student_quantile
from orchestrator.storage.tables.rows import Row

CLOSE = 0.01
"""Figures that differ by at most this share count as equal, even if they are known better."""
NEARLY = 0.05
"""A figure that is worse by at most this share counts as nearly as good."""
MAX_WAIT_SHARE = 0.05
"""A row counts as GPU-bound if its shares of waiting for the host are at most this."""


class Pace(enum.StrEnum):
    """What limits the speed of a trial."""

    GPU = "gpu"
    LAUNCHES = "launches"
    """The GPU waits for kernel launches. So count all rows of tables that do not record that."""
    HOST = "host"
    """The GPU runs out of work after micro-batches."""
    CPU = "cpu"
    """There is no GPU."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The variation between trials of one configuration, without that between a trial's steps. Two
    levels: a trial's own part, and one that all rows of a run share."""

    relative: float
    """Standard deviation of the part that grows with the step time, as a share of the step time."""
    seconds: float
    """Standard deviation of the constant part, which comes from waiting for the host."""
    degrees_of_freedom: float
    """Of the Student's t distribution that was fitted to the trials."""
    between_runs: float
    """Standard deviation of the logarithm of the factor by which all rows of two runs differ."""
    slow_host_seconds: float = 0.0
    """Another host may be too slow to keep the GPU busy. Its part is the square of this time over
    that of a step: the shorter a step, the likelier is that, and the larger what it changes."""
    waits_power: float = 0.0
    """The shares above grow with this power of ``waits``."""


BETWEEN_TRIALS: Mapping[Pace, Variation] = {
    Pace.GPU: Variation(0.0016, 0.0021, 7.0, 0.0069, 0.0230),
    Pace.LAUNCHES: Variation(0.0140, 0.0066, 3.5, 0.0193, 0.0386),
    Pace.HOST: Variation(0.1440, 0.0, 9.5, 0.1768, waits_power=0.17),
    Pace.CPU: Variation(CPU_ERROR, 0.0, 8.0, 0.0),
}
"""Those of ``Pace.CPU`` are an assumption, because every recorded run had a GPU."""
ENERGY_BETWEEN_TRIALS: Mapping[Pace, Variation] = {
    Pace.GPU: Variation(0.0026, 0.0290, 5.5, 0.0082, 0.0213),
    Pace.LAUNCHES: Variation(0.0051, 0.0244, 3.7, 0.0186, 0.0271),
    Pace.HOST: Variation(0.0859, 0.0288, 30.0, 0.1036, waits_power=0.53),
}
"""The same of the energy per sample. The constant part is a share of the counted time, because the
GPU's sensor, which is read at its begin and end, lags."""
BETWEEN_TECHNIQUES = 0.0038
"""Standard deviation of the logarithm of a further factor by which the GPU-bound rows of one
technique differ between two runs, because other clocks slow some techniques more."""


def pace_of(row: Row) -> Pace:
    """What limits the speed of a row."""
    if not row.get("gpu_model"):
        return Pace.CPU
    if waits(row) > MAX_WAIT_SHARE:
        return Pace.HOST
    is_recorded = row.get("launch_bound_update_share") is not None
    return Pace.GPU if is_recorded and launch_bound_share(row) <= MAX_WAIT_SHARE else Pace.LAUNCHES


def waits(row: Row) -> float:
    """The share of micro-batches after which the GPU of a row ran out of work, or of the time that
    it waited for data."""
    return max(row.get("host_bound_share") or 0.0, data_wait_share(row))


def step_seconds(row: Row) -> float:
    return row["effective_batch"] / row["samples_per_second"]


@dataclass(frozen=True, slots=True)
class SpeedError:
    """The uncertainty of the logarithm of a speed or energy: if small, its relative error."""

    standard_error: float
    """Beside other configurations of the same run."""
    degrees_of_freedom: float
    between_runs: float = 0.0
    """Standard deviation of what another run adds to the difference."""
    slow_host: float = 0.0
    """The same of a host that is too slow to keep the GPU busy."""

    @property
    def variance(self) -> float:
        """Of Student's t, whose tails are heavier than the normal distribution's of its scale."""
        return self.standard_error**2 * self.degrees_of_freedom / (self.degrees_of_freedom - 2)

    @property
    def half_width95(self) -> float:
        """Half the interval that holds the speed in 95 of 100 cases, relative to it."""
        quantile: float = student_quantile(0.975, self.degrees_of_freedom)
        return self.standard_error * quantile

    def of_another_run(self) -> Self:
        """With what all rows of two runs share, where it is not known."""
        return replace(self, standard_error=math.hypot(self.standard_error, self.between_runs))

    def of_another_trial(self, trials: int = 1) -> Self:
        """How far one more trial, of another run, may be from the mean of ``trials`` trials."""
        difference = self.standard_error * math.sqrt(1 + trials)
        difference = math.hypot(difference, self.slow_host)
        return replace(self, standard_error=difference).of_another_run()


UNKNOWN_ERROR = SpeedError(math.inf, 1.0)
"""The error of a speed without an interval."""


def speed_error(repeats: Sequence[Row]) -> SpeedError:
    """The uncertainty of the mean speed of trials; infinite if one has no interval of its own."""
    variations = [BETWEEN_TRIALS[pace_of(row)] for row in repeats]
    # The variance of a mean of n independent trials is the sum of their variances divided by n².
    return SpeedError(
        math.sqrt(sum(map(_variance, repeats))) / len(repeats),
        min(variation.degrees_of_freedom for variation in variations),
        max(map(_between_runs, repeats)),
        max(map(_slow_host, repeats, variations)),
    )


def energy_error(row: Row) -> SpeedError:
    """The uncertainty of a trial's energy per sample; infinite without a GPU."""
    variation = ENERGY_BETWEEN_TRIALS.get(pace_of(row))
    if variation is None or not row.get("counted_seconds"):
        return UNKNOWN_ERROR
    waiting = waits(row) ** variation.waits_power
    return SpeedError(
        math.hypot(waiting * variation.relative, variation.seconds / row["counted_seconds"]),
        variation.degrees_of_freedom,
        waiting * variation.between_runs,
        _slow_host(row, variation),
    )


def difference_error(before: SpeedError, after: SpeedError) -> SpeedError:
    """The uncertainty of the logarithm of the ratio of two independent speeds of one run."""
    return SpeedError(
        math.hypot(before.standard_error, after.standard_error),
        min(before.degrees_of_freedom, after.degrees_of_freedom),
        max(before.between_runs, after.between_runs),
    )


def _variance(row: Row) -> float:
    half_width = row.get("samples_per_second_ci95")
    half_width = math.inf if half_width is None else half_width
    # A 95 % interval of a normal distribution reaches 1.96 standard errors.
    own_steps = half_width / 1.96
    between = BETWEEN_TRIALS[pace_of(row)]
    # Both parts are independent, so their squares add up.
    relative = between.relative * waits(row) ** between.waits_power
    between_trials = math.hypot(relative, between.seconds / step_seconds(row))
    # For steps shorter than the fitted ones, 30 ms, the constant part would exceed all measured.
    between_trials = min(between_trials, BETWEEN_TRIALS[Pace.HOST].relative)
    return own_steps**2 + between_trials**2


def _between_runs(row: Row) -> float:
    between = BETWEEN_TRIALS[pace_of(row)]
    return between.between_runs * waits(row) ** between.waits_power


def _slow_host(row: Row, variation: Variation) -> float:
    part: float = (variation.slow_host_seconds / step_seconds(row)) ** 2
    # No row can differ by more than one whose GPU waits for the host at any time.
    return min(part, BETWEEN_TRIALS[Pace.HOST].between_runs)
