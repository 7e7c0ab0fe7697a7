"""Two runs of the same configurations: what changed between them beyond what chance explains.

A row's speed has changed when it lies outside both confidence intervals together, widened until two runs that differ
by chance alone show no change at all in 99 of 100 comparisons, however many rows they have, and by what runs differ in
whatever their intervals say: a per cent where the accelerator set the pace, ten where the host did, and nothing at all
is said of those where the hosts are unlike. Besides, the median of all steady rows is judged with a distribution-free
interval: a small change of everything shows there first.
"""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from jobs.techniques import AXES
from orchestrator.analysis import loss_parity
from orchestrator.analysis.pareto import Point, Row
from orchestrator.analysis.run_differences import HOSTS, SCHEDULE, VERSIONS, differences
from orchestrator.api import MeasuredRun

Kind = Literal["slower", "fatter", "broken", "trains differently", "faster", "leaner", "mended"]
WORSE: tuple[Kind, ...] = ("broken", "trains differently", "slower", "fatter")
BETTER: tuple[Kind, ...] = ("mended", "faster", "leaner")

FALSE_ALARM = 0.01
"""Chance that two runs that differ by chance alone show any change of speed."""
STEADY, UNSTEADY = 0.01, 0.10
"""What speeds of separate runs may differ by beside their intervals: paced by the accelerator, or by the host."""
_MEMORY: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_used_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory columns, the steadiest first -> what they may differ by: allocations repeat, a process's memory less so."""
TOO_UNSTEADY = 0.25
"""A row whose mean step is known no better than this is not judged by its speed at all."""
FEWEST_FOR_MEDIAN = 12
"""Steady rows that it takes to judge their median."""
FEWEST_DEGREES = 9
"""Degrees of freedom that a row's interval has at least: rows of few steps are those that were steady at once."""
_UNSTEADY = ("host-bound", "partly host-bound", "unstable", "thrashing", "shared")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One configuration, changed in one way."""

    kind: Kind
    label: str
    before: float | None = None
    """Samples per second, or bytes; None where the change is none of a figure."""
    after: float | None = None
    ratio: float | None = None
    """After to before."""
    margin: float | None = None
    """The relative change that chance may explain."""
    text: str = ""
    """Why it broke; what became of its loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """The median change of speed of all steady rows, with its interval."""

    ratio: float
    low: float
    high: float
    rows: int

    @property
    def is_real(self) -> bool:
        """Whether it is more than chance, and worth a word."""
        return not self.low <= 1 <= self.high and abs(self.ratio - 1) > STEADY / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What became of the configurations of one run in another."""

    matched: int
    """Configurations that ended ok in both."""
    unsteady: int
    """Of those, the ones whose speeds were too unsteady to be judged."""
    other_hosts: int
    """Of those, the ones not judged by their speed because a host had a part in it, and the hosts are unlike."""
    losses_compared: bool
    """Whether losses were: not where seed or length of training differ, which decide batches and learning rates."""
    changes: tuple[Change, ...]
    """Worst kind first, the largest change first."""
    shift: Shift | None
    only_before: int
    """Configurations with no finished trial in the other run."""
    only_after: int
    differences: tuple[tuple[str, str, str], ...]
    """(what, before, after) of hardware, versions, model and data."""
    text: str = ""
    """All of it in words, where a run was asked."""

    def __repr__(self) -> str:
        return self.text or object.__repr__(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"

    def worse_than(self, tolerance: float) -> tuple[Change, ...]:
        """What got worse by more than a relative tolerance; what broke or trains differently, always."""
        return tuple(
            change
            for change in self.changes
            if change.kind in WORSE
            and (change.ratio is None or _loss(change.kind, change.ratio) > tolerance)
        )

    def fails(self, tolerance: float) -> bool:
        """Whether anything, or everything together, got worse by more than a relative tolerance."""
        slower = self.shift is not None and self.shift.is_real and 1 - self.shift.ratio > tolerance
        return slower or bool(self.worse_than(tolerance))


def _loss(kind: Kind, ratio: float) -> float:
    return 1 - ratio if kind == "slower" else ratio - 1


def compare(before: MeasuredRun, after: MeasuredRun, *, unlike: bool = False) -> Comparison:
    """Match two runs by configuration. Whether their hardware is alike is the caller's to judge.

    ``unlike``: judge the speeds of rows that a host had a part in although the hosts differ.
    """
    old, new = _by_configuration(before), _by_configuration(after)
    pairs = [(old[key], new[key]) for key in old if key in new]
    both = [(a, b) for a, b in pairs if isinstance(a, Point) and isinstance(b, Point)]
    changes = list(_outcomes(before, after, pairs))
    sure = [
        pair
        for pair in both
        if all((p.samples_per_second_error or 0.0) < TOO_UNSTEADY for p in pair)
    ]
    same_host = unlike or not any(differences(before, after, HOSTS))
    judged = [pair for pair in sure if same_host or _is_steady(*pair)]
    changes += _speeds(before, judged)
    changes += [change for a, b in both if (change := _memory(before, a, b)) is not None]
    same_versions, same_schedule = (
        not any(differences(before, after, parts)) for parts in (VERSIONS, SCHEDULE)
    )
    changes += _losses(
        before, after, both, same_versions=same_versions, same_schedule=same_schedule
    )
    order = (*WORSE, *BETTER)
    return Comparison(
        matched=len(both),
        unsteady=len(both) - len(sure),
        other_hosts=len(sure) - len(judged),
        losses_compared=same_schedule,
        changes=tuple(
            sorted(changes, key=lambda c: (order.index(c.kind), -abs(math.log(c.ratio or 1))))
        ),
        shift=_shift([_ratio(a, b) for a, b in both if _is_steady(a, b)]),
        only_before=len(old.keys() - new.keys()),
        only_after=len(new.keys() - old.keys()),
        differences=tuple(differences(before, after)),
    )


def _by_configuration(run: MeasuredRun) -> dict[tuple[Any, ...], Point | Row]:
    """Configuration -> its point where it ended ok, else its row; what was skipped has not been tried."""
    found: dict[tuple[Any, ...], Point | Row] = {}
    for row in run.rows:
        if row["outcome"] not in ("ok", "skipped"):
            found[_key({axis: row[column] for axis, column in run.axes.items()})] = row
    return found | {_key(point.choices): point for point in run.own()}


def _key(choices: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is chosen, axes at their default left out: a run may have moved an axis that the other does not know."""
    moved = {
        axis: v
        for axis, v in choices.items()
        if axis not in AXES or str(v) != str(AXES[axis].default)
    }
    return tuple(sorted((axis, str(choice)) for axis, choice in moved.items()))


def _speeds(before: MeasuredRun, both: Sequence[tuple[Point, Point]]) -> list[Change]:
    """The more rows have changed, the less each has to prove (Benjamini and Hochberg's step-up)."""
    changed, risk = list(both), FALSE_ALARM
    while changed:
        risk = FALSE_ALARM * len(changed) / len(both)
        still = [(a, b) for a, b in both if abs(math.log(_ratio(a, b))) > margin_of(a, b, risk)]
        if len(still) >= len(changed):
            break
        changed = still
    return [_speed(before, a, b, margin_of(a, b, risk)) for a, b in changed]


def _speed(before: MeasuredRun, a: Point, b: Point, margin: float) -> Change:
    return Change(
        kind="slower" if _ratio(a, b) < 1 else "faster",
        label=before.label(a),
        before=a.samples_per_second,
        after=b.samples_per_second,
        ratio=_ratio(a, b),
        margin=margin,
    )


def _ratio(a: Point, b: Point) -> float:
    return b.samples_per_second / a.samples_per_second


def margin_of(a: Point, b: Point, risk: float) -> float:
    """The change of log speed that chance exceeds with probability ``risk``: the intervals widened, and the floor."""
    steps = [int(point.row.get("steps_counted") or 0) for point in (a, b)]
    freedom = max(min(steps) - 1, FEWEST_DEGREES)
    wider = student_quantile(1 - risk / 2, freedom) / student_quantile(0.975, freedom)
    errors = [wider * (point.samples_per_second_error or 0.0) for point in (a, b)]
    return math.hypot(*errors, STEADY if _is_steady(a, b) else UNSTEADY)


def student_quantile(probability: float, freedom: float) -> float:
    """Student's t, from the normal quantile by Cornish and Fisher (Abramowitz & Stegun 26.7.5); for 5 degrees on."""
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def _is_steady(*points: Point) -> bool:
    return not any(warning.startswith(_UNSTEADY) for point in points for warning in point.warnings)


def _memory(before: MeasuredRun, a: Point, b: Point) -> Change | None:
    """By the allocator where both have it, which repeats to the byte; else by the first figure that both have."""
    column = next((c for c in _MEMORY if a.row.get(c) and b.row.get(c)), None)
    if column is None:
        return None
    old, new, same = a.row[column], b.row[column], _MEMORY[column]
    if abs(new / old - 1) <= same:
        return None
    kind: Kind = "fatter" if new > old else "leaner"
    return Change(
        kind=kind, label=before.label(a), before=old, after=new, ratio=new / old, margin=same
    )


def _losses(
    before: MeasuredRun,
    after: MeasuredRun,
    both: Sequence[tuple[Point, Point]],
    *,
    same_versions: bool,
    same_schedule: bool,
) -> Iterator[Change]:
    """Losses that are not what they were: beyond rounding, or where versions differ, beyond what chance explains; where
    seed or length of training differ, only those that are no numbers any more."""
    old, new = before.losses(), after.losses()
    for a, b in both:
        then, now = (losses.get(point.trial_ids[0], ()) for losses, point in ((old, a), (new, b)))
        if not then or not now or not all(map(math.isfinite, then)):
            continue
        rounding = (
            loss_parity.ROUNDING.get(str(a.choices.get("precision", "fp32")), 0.0)
            if same_versions
            else None
        )
        broken = not all(map(math.isfinite, now))
        ratio = (
            math.nan
            if broken
            else loss_parity.factor(loss_parity.halves(now, then, rounding, 0.0))
            if same_schedule
            else None
        )
        if ratio is not None:
            text = (
                "loss is no number any more"
                if broken
                else f"loss {loss_parity.times(ratio)} times what it was"
            )
            yield Change(kind="trains differently", label=before.label(a), text=text)


def _outcomes(
    before: MeasuredRun, after: MeasuredRun, pairs: Iterable[tuple[Point | Row, Point | Row]]
) -> Iterator[Change]:
    for a, b in pairs:
        if isinstance(a, Point) and not isinstance(b, Point):
            yield Change(
                kind="broken", label=before.label(a), text=f"{b['outcome']}: {b['reason'] or ''}"
            )
        elif isinstance(b, Point) and not isinstance(a, Point):
            yield Change(
                kind="mended", label=after.label(b), text=f"was {a['outcome']}: {a['reason'] or ''}"
            )


def _shift(ratios: Sequence[float]) -> Shift | None:
    """The median with an interval from order statistics: as many ratios on either side as coin tosses may fall."""
    count = len(ratios)
    if count < FEWEST_FOR_MEDIAN:
        return None
    z = NormalDist().inv_cdf(1 - FALSE_ALARM / 20)
    low = max(0, math.floor((count - z * math.sqrt(count)) / 2))
    ordered = sorted(ratios)
    return Shift(
        ratio=statistics.median(ordered),
        low=ordered[low],
        high=ordered[count - 1 - low],
        rows=count,
    )
