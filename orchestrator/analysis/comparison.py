"""Two runs of the same configurations: what changed between them beyond what chance explains.

A configuration's speed has changed if the difference lies outside both confidence intervals
together, after two widenings. The first keeps the family-wise error: two runs that differ by chance
alone show no change at all in 99 of 100 comparisons, however many rows they have. The second is a
floor for what runs differ by whatever their intervals say: 1 % where the GPU sets the pace, 10 %
where the host does. Host-bound rows are not judged at all between different hosts.

The median of all steady rows is judged as well, with a distribution-free interval: a small change
of everything shows there first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

from jobs.flags import UNRELIABLE_SPEED, has_any
from jobs.record import Outcome
from jobs.steady_state import student_quantile
from jobs.techniques import AXES
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.loss_parity import ROUNDING, loss_windows, mismatch_ratio
from orchestrator.analysis.run_differences import (
    HOSTS,
    SCHEDULE,
    VERSIONS,
    Difference,
    differences,
)
from orchestrator.storage.tables.rows import Row

ChangeKind = Literal[
    "regressed", "loss mismatch", "slower", "more memory", "fixed", "faster", "less memory"
]
WORSE: tuple[ChangeKind, ...] = ("regressed", "loss mismatch", "slower", "more memory")
BETTER: tuple[ChangeKind, ...] = ("fixed", "faster", "less memory")

FALSE_ALARM = 0.01
"""Chance that two runs that differ by chance alone show any change of speed."""
STEADY_FLOOR, UNSTEADY_FLOOR = 0.01, 0.10
"""By how much speeds of separate runs may differ beside their intervals:

GPU-bound rows, and all others.
"""
_MEMORY_TOLERANCE: Mapping[str, float] = {
    "peak_allocated_bytes": 0.005,
    "device_peak_bytes": 0.01,
    "host_peak_resident_bytes": 0.05,
}
"""Memory column, the steadiest first -> by how much it may differ: allocations repeat, a process's
memory less so.
"""
MAX_ERROR = 0.25
"""A row whose mean step is known no better than this is not judged by its speed."""
MIN_ROWS_FOR_MEDIAN = 12
MIN_DEGREES_OF_FREEDOM = 9
"""A row's interval has at least so many: a row with few steps ended early because its steps were
steady.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One configuration, changed in one way."""

    kind: ChangeKind
    label: str
    before: float | None = None
    """Samples per second, or bytes; None where the change is not one of a figure."""
    after: float | None = None
    ratio: float | None = None
    """After divided by before."""
    margin: float | None = None
    """The relative change that chance may explain."""
    outcome: Outcome | None = None
    """Of the run in which it did not end ok."""
    reason: str = ""
    """Why it did not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianShift:
    """The median change of speed of all steady rows, with its interval."""

    ratio: float
    low: float
    high: float
    rows: int

    @property
    def is_real(self) -> bool:
        """Whether it is more than chance, and worth a word."""
        includes_one = self.low <= 1 <= self.high
        return not includes_one and abs(self.ratio - 1) > STEADY_FLOOR / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What became of the configurations of one run in another."""

    matched: int
    """Configurations that ended ok in both."""
    unsteady: int
    """Of those: speeds too unsteady to be judged."""
    other_hosts: int
    """Of those: not judged by speed because the host sets part of the pace, and the hosts differ.
    """
    losses_compared: bool
    """False where seed or length of training differ, which decide batches and learning rates."""
    changes: tuple[Change, ...]
    """Worst kind first, the largest change first."""
    shift: MedianShift | None
    only_before: int
    """Configurations with no finished trial in the other run."""
    only_after: int
    differences: tuple[Difference, ...]
    """Of hardware, versions, model and data."""

    def worse_than(self, tolerance: float) -> tuple[Change, ...]:
        """What got worse by more than a relative tolerance; regressions and loss mismatches always
        count.
        """
        found = []
        for change in self.changes:
            if change.kind in WORSE and (change.ratio is None or _loss_of(change) > tolerance):
                found.append(change)
        return tuple(found)

    def fails(self, tolerance: float) -> bool:
        """Whether anything, or everything together, got worse by more than a relative tolerance."""
        shift = self.shift
        is_slower = shift is not None and shift.is_real and 1 - shift.ratio > tolerance
        return is_slower or bool(self.worse_than(tolerance))


def _loss_of(change: Change) -> float:
    assert change.ratio is not None
    return 1 - change.ratio if change.kind == "slower" else change.ratio - 1


Pair = tuple[Configuration, Configuration]
"""One configuration, before and after."""


def compare(before: Dataset, after: Dataset, *, different_hosts: bool = False) -> Comparison:
    """Match two runs by configuration.

    Whether their hardware may be compared is for the caller to judge.

    ``different_hosts``: judge the speeds of rows that are not GPU-bound even if the hosts differ.
    """
    old, new = _by_configuration(before), _by_configuration(after)
    pairs = [(old[key], new[key]) for key in old if key in new]
    both: list[Pair] = []
    for one, other in pairs:
        if isinstance(one, Configuration) and isinstance(other, Configuration):
            both.append((one, other))
    known = [pair for pair in both if all(_ci95(own) < MAX_ERROR for own in pair)]
    same_host = different_hosts or not any(differences(before, after, HOSTS))
    judged = [pair for pair in known if same_host or _is_steady(pair)]
    same_schedule = not any(differences(before, after, SCHEDULE))
    changes = [
        *_outcome_changes(before, after, pairs),
        *_speed_changes(before, judged),
        *_memory_changes(before, both),
        *_loss_changes(before, after, both, same_schedule=same_schedule),
    ]
    return Comparison(
        matched=len(both),
        unsteady=len(both) - len(known),
        other_hosts=len(known) - len(judged),
        losses_compared=same_schedule,
        changes=tuple(sorted(changes, key=_place)),
        shift=_median_shift([_speed_ratio(pair) for pair in both if _is_steady(pair)]),
        only_before=len(old.keys() - new.keys()),
        only_after=len(new.keys() - old.keys()),
        differences=tuple(differences(before, after)),
    )


def _place(change: Change) -> tuple[int, float]:
    order = (*WORSE, *BETTER)
    return order.index(change.kind), -abs(math.log(change.ratio or 1))


def _by_configuration(run: Dataset) -> dict[tuple[Any, ...], Configuration | Row]:
    """Choices -> what ended ok, else the row; what was only skipped is left out."""
    found: dict[tuple[Any, ...], Configuration | Row] = {}
    for row in run.rows:
        if row["outcome"] not in (Outcome.OK, Outcome.SKIPPED):
            choices = {axis: row[column] for axis, column in run.axes.items()}
            found[_key(choices)] = row
    for configuration in run.main.configurations if run.main else ():
        found[_key(configuration.choices)] = configuration
    return found


def _key(choices: Mapping[str, Any]) -> tuple[Any, ...]:
    """What is chosen, defaults left out: a run may have an axis that the other does not have."""
    moved = []
    for axis, value in choices.items():
        if axis not in AXES or str(value) != str(AXES[axis].default):
            moved.append((axis, str(value)))
    return tuple(sorted(moved))


def _speed_changes(before: Dataset, pairs: Sequence[Pair]) -> list[Change]:
    """Changes of speed beyond chance, by the step-up procedure of Benjamini and Hochberg (1995).

    Each row is tested at the false-alarm rate times the share of rows that change, until that share
    is stable.
    """
    changed = list(pairs)
    risk = FALSE_ALARM
    while changed:
        risk = FALSE_ALARM * len(changed) / len(pairs)
        still = [
            pair for pair in pairs if abs(math.log(_speed_ratio(pair))) > margin_of(pair, risk)
        ]
        if len(still) >= len(changed):
            break
        changed = still
    return [_speed_change(before, pair, margin_of(pair, risk)) for pair in changed]


def _speed_change(before: Dataset, pair: Pair, margin: float) -> Change:
    old, new = pair
    ratio = _speed_ratio(pair)
    return Change(
        kind="slower" if ratio < 1 else "faster",
        label=before.label(old.choices),
        before=old.samples_per_second,
        after=new.samples_per_second,
        ratio=ratio,
        margin=margin,
    )


def _speed_ratio(pair: Pair) -> float:
    old, new = pair
    return new.samples_per_second / old.samples_per_second


def margin_of(pair: Pair, risk: float) -> float:
    """The change of log speed that chance exceeds with probability ``risk``: widened intervals and
    the floor.
    """
    steps = [int(own.row.get("steps_counted") or 0) for own in pair]
    degrees = max(min(steps) - 1, MIN_DEGREES_OF_FREEDOM)
    # The intervals are for 5 %; scaled to the risk they are as much wider as the quantiles of
    # Student's t.
    widening = student_quantile(1 - risk / 2, degrees) / student_quantile(0.975, degrees)
    errors = [widening * _ci95(own) for own in pair]
    floor = STEADY_FLOOR if _is_steady(pair) else UNSTEADY_FLOOR
    return math.hypot(*errors, floor)


def _ci95(configuration: Configuration) -> float:
    return configuration.samples_per_second_ci95 or 0.0


def _is_steady(pair: Pair) -> bool:
    return not any(has_any(own.flags, UNRELIABLE_SPEED) for own in pair)


def _memory_changes(before: Dataset, pairs: Iterable[Pair]) -> Iterator[Change]:
    """By the allocator where both have it, which repeats to the byte; else by the first figure that
    both have.
    """
    for old, new in pairs:
        shared = [c for c in _MEMORY_TOLERANCE if old.row.get(c) and new.row.get(c)]
        if not shared:
            continue
        column = shared[0]
        ratio = new.row[column] / old.row[column]
        tolerance = _MEMORY_TOLERANCE[column]
        if abs(ratio - 1) > tolerance:
            yield Change(
                kind="more memory" if ratio > 1 else "less memory",
                label=before.label(old.choices),
                before=old.row[column],
                after=new.row[column],
                ratio=ratio,
                margin=tolerance,
            )


def _loss_changes(
    before: Dataset, after: Dataset, pairs: Iterable[Pair], *, same_schedule: bool
) -> Iterator[Change]:
    """Losses that changed: beyond rounding, or where versions differ, beyond what chance explains.

    Where seed or length of training differ, only losses that are no longer finite count.
    """
    same_versions = not any(differences(before, after, VERSIONS))
    for old, new in pairs:
        then = before.losses.get(old.trial_ids[0], ())
        now = after.losses.get(new.trial_ids[0], ())
        if not then or not now or not all(map(math.isfinite, then)):
            continue
        label = before.label(old.choices)
        if not all(map(math.isfinite, now)):
            yield Change(kind="loss mismatch", label=label)
            continue
        if not same_schedule:
            continue
        precision = str(old.choices.get("precision", "fp32"))
        rounding = ROUNDING.get(precision, 0.0) if same_versions else None
        ratio = mismatch_ratio(loss_windows(now, then, rounding, 0.0))
        if ratio is not None:
            # A changed loss is always reported, so its size is no ``ratio`` to compare with a
            # tolerance.
            yield Change(kind="loss mismatch", label=label, after=ratio)


def _outcome_changes(
    before: Dataset,
    after: Dataset,
    pairs: Iterable[tuple[Configuration | Row, Configuration | Row]],
) -> Iterator[Change]:
    for old, new in pairs:
        if isinstance(old, Configuration) and not isinstance(new, Configuration):
            yield _outcome_change("regressed", before.label(old.choices), new)
        elif isinstance(new, Configuration) and not isinstance(old, Configuration):
            yield _outcome_change("fixed", after.label(new.choices), old)


def _outcome_change(kind: ChangeKind, label: str, row: Row) -> Change:
    outcome = Outcome(row["outcome"])
    return Change(kind=kind, label=label, outcome=outcome, reason=row["reason"] or "")


def _median_shift(ratios: Sequence[float]) -> MedianShift | None:
    """The median of speed ratios with a distribution-free interval from order statistics.

    As many ratios lie on either side of the true median as coin tosses may fall (normal
    approximation of the binomial).
    """
    count = len(ratios)
    if count < MIN_ROWS_FOR_MEDIAN:
        return None
    z = NormalDist().inv_cdf(1 - FALSE_ALARM / 20)
    rank = max(0, math.floor((count - z * math.sqrt(count)) / 2))
    ordered = sorted(ratios)
    return MedianShift(
        ratio=statistics.median(ordered),
        low=ordered[rank],
        high=ordered[count - 1 - rank],
        rows=count,
    )
