"""Compares the losses of two trials in windows: the difference, what is allowed, and the result."""

import enum
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jobs.steady_state import student_quantile

ROUNDING: Mapping[str, float] = {
    "fp32": 1e-3,
    "tf32": 5e-3,
    "fp16": 2e-2,
    "bf16": 2e-2,
    "bf16_weights": 5e-2,
}
"""Precision -> relative difference that rounding may cause in the mean losses of equal draws. Each
is several times the largest difference of the runs in docs/results."""
OTHER_DRAWS = 0.1
"""Relative difference that is allowed between rows with other random numbers, beside the scatter of
the reference; a round figure."""
STANDARD_ERRORS = 3.0
"""A difference of two means counts as chance up to this many standard errors."""
MAX_BOUND = OTHER_DRAWS
"""A comparison that a larger difference could pass says nothing: its result is "not checked"."""


class CheckState(enum.StrEnum):
    """What the check of a trial's losses says, the weakest state first."""

    MISMATCH = "mismatch"
    """The losses differ from the reference's by more than chance, or are not finite."""
    NOT_CHECKED = "not checked"
    """There is no reference or no loss, or a difference of more than 10 % could be chance."""
    MATCHES = "matches"
    """The losses agree with those of the reference, and a difference of 10 % would be found."""
    REFERENCE = "reference"
    """Other trials are compared with this one. It is compared with no other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossWindow:
    """Some steps of a row, compared with the same steps of its reference."""

    begin: int
    """The first step, counted from 0."""
    end: int
    """The step after the last one."""
    own: float
    """Mean loss."""
    reference: float
    """The reference's mean loss."""
    scale: float
    """The reference's mean absolute loss over all steps that are compared."""
    allowed: float
    """By how much the means may differ, relative to the scale."""
    paired_error: float = math.inf
    """Half the 99 % interval of the mean difference of equal steps, relative to the scale."""

    @property
    def difference(self) -> float:
        """By how much the means differ, relative to the scale."""
        return abs(self.own - self.reference) / self.scale

    @property
    def matches(self) -> bool:
        """Whether the means differ by no more than is allowed."""
        return self.difference <= self.allowed

    @property
    def bound(self) -> float:
        """The smallest fault that is seen here: a true difference beyond this is detected. It is
        less than ``allowed`` if the losses rise and fall together, as with the same samples."""
        return min(self.allowed, self.difference + self.paired_error)

    @property
    def has_power(self) -> bool:
        """Whether every difference beyond ``MAX_BOUND`` would be found here."""
        return self.bound <= MAX_BOUND


def loss_windows(
    own: Sequence[float], reference: Sequence[float], rounding: float | None, further: float
) -> tuple[LossWindow, ...]:
    """Compares each half of the steps that both trials have. The means may differ by ``rounding``;
    if it is None, by chance and ``further``."""
    steps = min(len(own), len(reference))
    # Relative to the mean of all steps, so that a half with a loss near zero is no mismatch.
    scale = statistics.fmean(map(abs, reference[:steps])) or math.ulp(1.0)
    # The scatter of single steps gives the difference of two means that chance can explain.
    deviation = _step_deviation(reference) / scale
    paired_half_width = _paired_half_width(own[:steps], reference[:steps]) / scale
    # Halves, because a late divergence would be averaged away in the whole.
    middle = steps // 2
    windows = []
    for half in (slice(0, middle), slice(middle, steps)) if middle else (slice(0, steps),):
        count = half.stop - half.start
        # The variance of the difference of two means is the sum of both variances.
        unpaired_error = STANDARD_ERRORS * deviation * math.sqrt(2 / count)
        paired_error = paired_half_width / math.sqrt(count)
        # What equal samples cause in both losses is no chance, so the narrower interval serves.
        chance = min(unpaired_error, paired_error)
        allowed = OTHER_DRAWS + further + chance if rounding is None else rounding
        windows.append(
            LossWindow(
                begin=half.start,
                end=half.stop,
                own=statistics.fmean(own[half]),
                reference=statistics.fmean(reference[half]),
                scale=scale,
                allowed=allowed,
                paired_error=paired_error,
            )
        )
    return tuple(windows)


def _step_deviation(losses: Sequence[float]) -> float:
    """The standard deviation from step to step, without the trend."""
    # Von Neumann's estimator: the difference of successive steps has twice a step's variance.
    squares = [(after - before) ** 2 for before, after in itertools.pairwise(losses)]
    return math.sqrt(statistics.fmean(squares) / 2) if squares else 0.0


def _paired_half_width(own: Sequence[float], reference: Sequence[float]) -> float:
    """Half the 99 % interval of one step's difference; infinite if there is only one step."""
    if len(own) < 2:
        return math.inf
    # With the same samples in the same order, what both losses have in common cancels out.
    differences = [mine - other for mine, other in zip(own, reference, strict=True)]
    quantile: float = student_quantile(0.995, len(differences) - 1)
    # statistics.stdev computes with fractions, which is slow.
    mean = statistics.fmean(differences)
    variance = math.fsum((each - mean) ** 2 for each in differences) / (len(differences) - 1)
    return quantile * math.sqrt(variance)


def mismatch_ratio(windows: Sequence[LossWindow]) -> float | None:
    """A row's mean loss divided by its reference's, where they differ; None if they match."""
    differing = [window for window in windows if not window.matches]
    if not differing:
        return None
    if len(differing) == len(windows):
        # Both halves differ: the mean over all steps, from the means of halves of unequal length.
        total = sum(window.own * (window.end - window.begin) for window in windows)
        return total / windows[-1].end / windows[0].scale
    worst = max(differing, key=attrgetter("difference"))
    return worst.own / worst.reference if worst.reference else math.inf


def state_of(windows: Sequence[LossWindow]) -> CheckState:
    """A difference beyond even a wide bound is a mismatch; agreement counts only with power."""
    if not all(window.matches for window in windows):
        return CheckState.MISMATCH
    has_power = windows and all(window.has_power for window in windows)
    return CheckState.MATCHES if has_power else CheckState.NOT_CHECKED
