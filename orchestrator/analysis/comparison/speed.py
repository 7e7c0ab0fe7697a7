"""Changes of speed that are larger than the differences between two equal runs.

Three tests are made on the GPU-bound rows: of all rows together, which shows a small change that no
single row can show, of each technique against all other rows, and of each single configuration.
Recorded repeats show by how much equal runs differ (``orchestrator.analysis.repeatability``): by
what each trial varies, and by what all rows of a run share.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from jobs.steady_state import student_quantile
from orchestrator.analysis.comparison.changes import Change, Shift
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.repeatability import BETWEEN_TECHNIQUES, SpeedError, difference_error

Pair = tuple[Configuration, Configuration]
"""One configuration that ended ok in both runs, before and after."""
FALSE_ALARM = 0.03
"""Probability that single rows of two equal runs are said to differ. Most of the 1 in 20 is theirs,
because what chance explains in the worst of many rows is far more than in their mean."""
FALSE_ALARM_TOGETHER = 0.01
"""The same of all rows together, and of techniques."""
EQUAL_CHANCES = [number / 20 for number in range(1, 20, 2)]
"""The middles of ten ranges of probability in which a deviation is equally likely to be."""
MIN_ROWS = 5
"""The fewest rows that are judged together. With fewer, the normal approximation is too rough."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """By how much one configuration changed, without what all rows of equal runs share."""

    pair: Pair
    log_ratio: float
    """In the logarithm, a doubling is as far from 0 as a halving."""
    shared: float
    """The logarithm of the ratio that was taken away."""
    error: SpeedError

    def margin(self, risk: float) -> float:
        """The deviation that two equal runs exceed with probability ``risk``."""
        quantile: float = student_quantile(1 - risk / 2, self.error.degrees_of_freedom)
        return quantile * self.error.standard_error


def deviations(pairs: Sequence[Pair]) -> list[Deviation]:
    """Those of pairs that are limited by the same."""
    errors = [_error(pair) for pair in pairs]
    shift = common_shift(pairs)
    if shift is None or shift.is_real:
        # With few pairs, what they share by chance is not known. A real shift is part of a change.
        shared = 0.0
        errors = [error.of_another_run() for error in errors]
    else:
        # The median, because rows that changed must not move it. Its variance is pi/2 times that
        # of the mean, if the rows are many and normal.
        shared = statistics.median(map(log_speed_ratio, pairs))
        _, mean_error = _weighted_mean(pairs)
        own = math.sqrt(math.pi / 2) * mean_error
        errors = [
            replace(error, standard_error=math.hypot(error.standard_error, own)) for error in errors
        ]
    return [
        Deviation(pair, log_speed_ratio(pair) - shared, shared, error)
        for pair, error in zip(pairs, errors, strict=True)
    ]


def smallest_visible(gpu_bound: Sequence[Deviation], judged: int) -> float | None:
    """``Comparison.smallest_visible``, if ``judged`` configurations are tested."""
    # If a single row changes, the step-up procedure tests it at this level. It is Bonferroni's.
    needed = [
        each.margin(FALSE_ALARM / judged)
        + each.error.standard_error * student_quantile(chance, each.error.degrees_of_freedom)
        for each in gpu_bound
        for chance in EQUAL_CHANCES
    ]
    return -math.expm1(-statistics.quantiles(needed, n=10)[-1]) if needed else None


def single_changes(before: Dataset, tested: Sequence[Deviation]) -> Iterator[Change]:
    """Configurations that changed, by the step-up procedure of Benjamini and Hochberg (1995)."""
    changed = list(tested)
    risk = FALSE_ALARM
    while changed:
        # With k of n rows changed, a test at the level k/n keeps the expected share of false
        # alarms among the reported rows at FALSE_ALARM.
        risk = FALSE_ALARM * len(changed) / len(tested)
        still = [each for each in tested if abs(each.log_ratio) > each.margin(risk)]
        if len(still) >= len(changed):
            break
        changed = still
    for each in changed:
        old_speed, new_speed = (own.samples_per_second for own in each.pair)
        yield Change(
            kind="slower" if each.log_ratio < 0 else "faster",
            label=before.label(each.pair[0].choices),
            before=old_speed,
            after=new_speed,
            ratio=new_speed / old_speed,
            all_rows=math.exp(each.shared) if each.shared else None,
            margin=math.expm1(each.margin(risk)),
        )


def log_speed_ratio(pair: Pair) -> float:
    """Of the later speed to the earlier one."""
    before, after = pair
    return math.log(after.samples_per_second / before.samples_per_second)


def _error(pair: Pair) -> SpeedError:
    earlier, later = pair
    return difference_error(earlier.speed_error, later.speed_error)


def common_shift(pairs: Sequence[Pair]) -> Shift | None:
    """The mean change of rows that are limited by the same; None with fewer than ``MIN_ROWS``."""
    if len(pairs) < MIN_ROWS:
        return None
    mean, error = _weighted_mean(pairs)
    scale = math.hypot(error, max(_error(pair).between_runs for pair in pairs))
    return _shift(mean, scale, FALSE_ALARM_TOGETHER, len(pairs))


def technique_shifts(pairs: Sequence[Pair]) -> Iterator[Shift]:
    """Techniques whose rows changed by more, or by less, than all other rows."""
    groups = []
    techniques = dict.fromkeys(
        (axis, str(value)) for earlier, _ in pairs for axis, value in earlier.choices.items()
    )
    for axis, value in techniques:
        of_group = [pair for pair in pairs if str(pair[0].choices.get(axis)) == value]
        others = [pair for pair in pairs if str(pair[0].choices.get(axis)) != value]
        if min(len(of_group), len(others)) >= MIN_ROWS:
            groups.append((axis, value, of_group, others))
    for axis, value, of_group, others in groups:
        group_mean, group_error = _weighted_mean(of_group)
        other_mean, other_error = _weighted_mean(others)
        scale = math.hypot(group_error, other_error, BETWEEN_TECHNIQUES)
        # Bonferroni: every technique is one more chance of a false alarm.
        risk = FALSE_ALARM_TOGETHER / len(groups)
        shift = _shift(group_mean - other_mean, scale, risk, len(of_group), axis, value)
        if shift.is_real:
            yield shift


def _weighted_mean(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Mean log speed ratio, weighted by the inverse variances, which makes its error smallest."""
    weights = [_error(pair).variance ** -1 for pair in pairs]
    ratios = [log_speed_ratio(pair) for pair in pairs]
    total = sum(weights)
    weighted = [weight * ratio for weight, ratio in zip(weights, ratios, strict=True)]
    return sum(weighted) / total, total**-0.5


def _shift(
    mean: float, scale: float, risk: float, rows: int, axis: str = "", value: str = ""
) -> Shift:
    # Means of many rows are close to normal, whatever the rows' own distribution.
    half_width = NormalDist().inv_cdf(1 - risk / 2) * scale
    return Shift(
        ratio=math.exp(mean),
        low=math.exp(mean - half_width),
        high=math.exp(mean + half_width),
        rows=rows,
        axis=axis,
        value=value,
    )
