"""Changes of speed beyond chance: of single configurations, and of the median of all.

A configuration's speed has changed if the difference lies outside both confidence intervals
together, after two widenings. The first keeps the family-wise error: two runs that differ by chance
alone show no change at all in 99 of 100 comparisons, however many rows they have. The second is a
floor for what runs differ by whatever their intervals say: 1 % where the GPU sets the pace, 10 %
where the host does.

The median of all steady rows is judged as well, with a distribution-free interval: a small change
of everything shows there first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist

from jobs.steady_state import student_quantile
from orchestrator.analysis.comparison.changes import STEADY_FLOOR, Change, MedianShift
from orchestrator.analysis.comparison.pairs import Pair, is_steady, relative_ci95, speed_ratio
from orchestrator.analysis.dataset import Dataset

FALSE_ALARM = 0.01
"""Chance that two runs that differ by chance alone show any change of speed."""
UNSTEADY_FLOOR = 0.10
"""By how much the speeds of rows that are not GPU-bound may differ beside their intervals."""
MIN_ROWS_FOR_MEDIAN = 12
"""With fewer steady rows the median's interval would be the whole range of ratios."""
MIN_DEGREES_OF_FREEDOM = 9
"""A row's interval has at least so many: a row with few steps ended early because its steps were
steady.
"""


def speed_changes(before: Dataset, pairs: Sequence[Pair]) -> list[Change]:
    """Changes of speed beyond chance, by the step-up procedure of Benjamini and Hochberg (1995).

    Each row is tested at the false-alarm rate times the share of rows that change, until that share
    is stable.
    """
    changed = list(pairs)
    risk = FALSE_ALARM
    while changed:
        risk = FALSE_ALARM * len(changed) / len(pairs)
        still_changed = [pair for pair in pairs if _is_beyond(pair, risk)]
        if len(still_changed) >= len(changed):
            break
        changed = still_changed
    return [_speed_change(before, pair, margin_of(pair, risk)) for pair in changed]


def _is_beyond(pair: Pair, risk: float) -> bool:
    """Whether chance explains the pair's difference with less than a probability of ``risk``."""
    return abs(math.log(speed_ratio(pair))) > margin_of(pair, risk)


def _speed_change(before: Dataset, pair: Pair, margin: float) -> Change:
    earlier, later = pair
    ratio = speed_ratio(pair)
    return Change(
        kind="slower" if ratio < 1 else "faster",
        label=before.label(earlier.choices),
        before=earlier.samples_per_second,
        after=later.samples_per_second,
        ratio=ratio,
        margin=margin,
    )


def margin_of(pair: Pair, risk: float) -> float:
    """The change of log speed that chance exceeds with probability ``risk``: widened intervals and
    the floor.
    """
    steps = [int(own.row.get("steps_counted") or 0) for own in pair]
    degrees = max(min(steps) - 1, MIN_DEGREES_OF_FREEDOM)
    # The intervals are for 5 %; scaled to the risk they are as much wider as the quantiles of
    # Student's t.
    widening = student_quantile(1 - risk / 2, degrees) / student_quantile(0.975, degrees)
    errors = [widening * relative_ci95(own) for own in pair]
    floor = STEADY_FLOOR if is_steady(pair) else UNSTEADY_FLOOR
    # Independent errors add by their squares.
    return math.hypot(*errors, floor)


def median_shift(pairs: Sequence[Pair]) -> MedianShift | None:
    """The median of the steady pairs' speed ratios, with a distribution-free interval.

    None with fewer than ``MIN_ROWS_FOR_MEDIAN`` steady pairs. The bounds are order statistics: as
    many ratios lie on either side of the true median as coin tosses may fall (normal approximation
    of the binomial).
    """
    ratios = sorted(speed_ratio(pair) for pair in pairs if is_steady(pair))
    count = len(ratios)
    if count < MIN_ROWS_FOR_MEDIAN:
        return None
    # A tenth of the rows' false-alarm rate, two-sided: the median is one more chance of an alarm.
    z = NormalDist().inv_cdf(1 - FALSE_ALARM / 20)
    # A fair coin tossed n times falls within z standard deviations, sqrt(n) / 2 each, of n / 2.
    rank = max(0, math.floor((count - z * math.sqrt(count)) / 2))
    return MedianShift(
        ratio=statistics.median(ratios),
        low=ratios[rank],
        high=ratios[count - 1 - rank],
        rows=count,
    )
