"""Loss parity: which rows have other losses than a reference at equal seed, data and effective
batch.

Means over each half of the training are compared, relative to the reference's mean over the whole.

- Rows that draw the same random numbers differ only in how activations are kept or data is loaded:
  they must agree to within their precision's rounding.
- Other rows train alike but not equally: another split of the batch, precision or kernel draws
  other dropout masks, and another loop orders the data differently. They may differ by as much as
  the reference's own losses scatter from step to step. That is wide for few steps and small
  batches, so a mismatch is certain and a match is not proof.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome
from jobs.techniques import AXES
from orchestrator.storage.tables.rows import Row

ROUNDING: Mapping[str, float] = {
    "fp32": 1e-3,
    "tf32": 5e-3,
    "fp16": 2e-2,
    "bf16": 2e-2,
    "bf16_weights": 5e-2,
}
"""Precision -> by how much the mean losses of rows with the same draws may differ, relative:
several times what those of the runs in docs/results do.
"""

OTHER_DRAWS = 0.1
"""By how much rows with other draws may always differ."""
OTHER_BATCH = 0.5
"""By how much more they may differ from a reference of another effective batch, which sees other
data.
"""
STANDARD_ERRORS = 3.0
"""A difference of two means beyond so many standard errors is not chance."""

_SAME_DRAWS = ("activations", "dataloader")
"""Axes that change no random number and no order of computation."""
_BATCH_AXES = ("micro_batch", "accumulation")

Group = tuple[str, int]
"""Training recipe (as in the table) and effective batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossWindow:
    """Some steps of a row, compared with the same steps of its reference."""

    begin: int
    """The first of them, from 0."""
    end: int
    """One after the last."""
    own: float
    """Mean loss."""
    reference: float
    """The reference's mean loss."""
    scale: float
    """The reference's mean absolute loss over all steps that are compared."""
    allowed: float
    """By how much the means may differ, relative to the scale."""

    @property
    def difference(self) -> float:
        """By how much they do differ, relative to the scale."""
        return abs(self.own - self.reference) / self.scale

    @property
    def matches(self) -> bool:
        """Whether that is allowed."""
        return self.difference <= self.allowed


def loss_flags(
    rows: Iterable[Row], losses: Mapping[str, Sequence[float]], axes: Mapping[str, str]
) -> dict[str, Flag]:
    """Trial -> a flag, for the ok rows whose losses do not match.

    ``losses`` are each trial's, per optimizer step.
    """
    by_environment: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK and losses.get(row["trial_id"]):
            by_environment.setdefault(row["environment_id"], []).append(row)
    found: dict[str, Flag] = {}
    for own in by_environment.values():
        finite = [row for row in own if all(map(math.isfinite, losses[row["trial_id"]]))]
        references = _References(finite, axes)
        for row in own:
            flag = _flag(row, references, losses, axes)
            if flag is not None:
                found[row["trial_id"]] = flag
    return found


class _References:
    """Which rows a row of one environment has to agree with."""

    def __init__(self, rows: Sequence[Row], axes: Mapping[str, str]) -> None:
        self._axes = axes
        self._plainest_of_group: dict[Group, Row] = {}
        self._plainest_of_draws: dict[tuple[object, ...], Row] = {}
        for row in sorted(rows, key=self._distance_to_defaults):
            self._plainest_of_group.setdefault(_group(row), row)
            self._plainest_of_draws.setdefault(_draws(row, axes), row)

    def of(self, row: Row) -> list[Row]:
        """The plainest row with the same draws, and the plainest row of its group; never the row
        itself.
        """
        candidates = (self._plainest_of_draws.get(_draws(row, self._axes)), self._of_group(row))
        chosen = {other["trial_id"]: other for other in candidates if other is not None}
        chosen.pop(row["trial_id"], None)
        return list(chosen.values())

    def _of_group(self, row: Row) -> Row | None:
        """The plainest row of the same recipe and effective batch.

        Where that was only ever accumulated, a neighbouring group without accumulation: the same
        recipe at the nearest other batch, else another recipe at the same batch.
        """
        recipe, batch = _group(row)
        own = self._plainest_of_group.get((recipe, batch))
        if own is None or own["accumulation"] == 1:
            return own
        neighbours = {}
        for (other_recipe, other_batch), other in self._plainest_of_group.items():
            if other["accumulation"] == 1 and _share_recipe_or_batch(
                (recipe, batch), (other_recipe, other_batch)
            ):
                distance = abs(math.log(other_batch / batch))
                neighbours[(other_recipe != recipe, distance)] = other
        return neighbours[min(neighbours)] if neighbours else own

    def _distance_to_defaults(self, row: Row) -> tuple[int, int]:
        moved = 0
        for axis, column in self._axes.items():
            if axis in AXES and axis not in _BATCH_AXES and row[column] != AXES[axis].default:
                moved += 1
        return row["accumulation"], moved


def _share_recipe_or_batch(one: Group, other: Group) -> bool:
    """Whether two groups share the recipe or the effective batch."""
    return one[0] == other[0] or one[1] == other[1]


def _group(row: Row) -> Group:
    return row["training_recipe"], row["effective_batch"]


def _draws(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    """What decides the random numbers, the precision and the order of a row's computation."""
    chosen = [row[column] for axis, column in axes.items() if axis not in _SAME_DRAWS]
    return (*_group(row), *chosen)


def _flag(
    row: Row,
    references: _References,
    losses: Mapping[str, Sequence[float]],
    axes: Mapping[str, str],
) -> Flag | None:
    own = losses[row["trial_id"]]
    for step, loss in enumerate(own, 1):
        if not math.isfinite(loss):
            return Flag(FlagKind.LOSS_NOT_FINITE, step)
    for reference in references.of(row):
        windows = compared(row, reference, own, losses[reference["trial_id"]], axes)
        ratio = mismatch_ratio(windows)
        if ratio is not None:
            return _mismatch(ratio, row["accumulation"] / reference["accumulation"])
    return None


def _mismatch(ratio: float, accumulation: float) -> Flag:
    """A model that does not divide by the accumulation has a loss, and gradients, that many times
    too large.
    """
    if accumulation > 1 and 0.8 < ratio / accumulation < 1.25:
        return Flag(FlagKind.LOSS_TIMES_ACCUMULATION, ratio)
    return Flag(FlagKind.LOSS_MISMATCH, ratio)


def compared(
    row: Row,
    reference: Row,
    own: Sequence[float],
    others: Sequence[float],
    axes: Mapping[str, str],
) -> tuple[LossWindow, ...]:
    """What is compared of two rows' losses.

    Before the first update the recipe does not matter; afterwards it does, and rows of unlike
    recipes are compared in that step alone.
    """
    same_draws = _draws(reference, axes) == _draws(row, axes)
    precision = str(row.get(axes.get("precision", "precision")) or "fp32")
    rounding = ROUNDING.get(precision, 0.0) if same_draws else None
    same_batch = row["effective_batch"] == reference["effective_batch"]
    same_recipe = row["training_recipe"] == reference["training_recipe"]
    return loss_windows(
        own if same_recipe else own[:1], others, rounding, 0.0 if same_batch else OTHER_BATCH
    )


def loss_windows(
    own: Sequence[float], reference: Sequence[float], rounding: float | None, further: float
) -> tuple[LossWindow, ...]:
    """Each half of the steps that both have.

    They may differ by ``rounding``, or where that is None, by as much as chance and ``further``
    allow.
    """
    steps = min(len(own), len(reference))
    step_deviation = _step_deviation(reference)
    scale = statistics.fmean(map(abs, reference[:steps])) or math.ulp(1.0)
    bounds = (0, steps) if steps < 2 else (0, steps // 2, steps)
    windows = []
    for begin, end in itertools.pairwise(bounds):
        # Standard error of the difference of two means of (end - begin) independent steps each.
        standard_error = step_deviation / scale * math.sqrt(2 / (end - begin))
        chance = OTHER_DRAWS + further + STANDARD_ERRORS * standard_error
        windows.append(
            LossWindow(
                begin=begin,
                end=end,
                own=statistics.fmean(own[begin:end]),
                reference=statistics.fmean(reference[begin:end]),
                scale=scale,
                allowed=chance if rounding is None else rounding,
            )
        )
    return tuple(windows)


def mismatch_ratio(windows: Sequence[LossWindow]) -> float | None:
    """A row's mean loss divided by its reference's; only the worst half's where just one differs.

    None: they match.
    """
    apart = [window for window in windows if not window.matches]
    if not apart:
        return None
    if len(apart) == len(windows):
        total = sum(window.own * (window.end - window.begin) for window in windows)
        return total / windows[-1].end / windows[0].scale
    worst = max(apart, key=lambda window: window.difference)
    return worst.own / worst.reference if worst.reference else math.inf


def _step_deviation(losses: Sequence[float]) -> float:
    """The standard deviation from step to step, a trend left out (von Neumann's successive
    differences).
    """
    squares = [(after - before) ** 2 for before, after in itertools.pairwise(losses)]
    return math.sqrt(statistics.fmean(squares) / 2) if squares else 0.0
