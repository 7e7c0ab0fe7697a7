"""Checks the losses of every row against those of its references.

The reference of a group is the *plainest* row: that with the fewest choices that are no defaults.
Rows have the *same draws* if random numbers, order of computation and precision are the same.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from jobs.flags import Flag, FlagKind
from jobs.gradient_check import scaling_flag
from jobs.record import Outcome
from jobs.techniques import AXES, BATCH_AXES
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.loss_parity.windows import (
    ROUNDING,
    CheckState,
    LossWindow,
    loss_windows,
    mismatch_ratio,
    state_of,
)
from orchestrator.storage.tables.rows import Row, recipe_of

OTHER_BATCH = 0.5
"""Further relative difference with other samples in each step, by another batch; a round figure."""
_SAME_DRAWS = ("activations", "allocator", "dataloader")
"""Axes that change no random number and no order of computation."""

Losses = Mapping[str, Sequence[float]]
"""Trial -> its losses per optimizer step."""
Group = tuple[str, int]
"""Training recipe (as in the table) and effective batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCheck:
    """What the losses of one trial say about its training."""

    state: CheckState
    steps: int = 0
    """Of the last comparison; 0 if there was none."""
    bound: float | None = None
    """Every relative difference beyond this is detected; None if nothing was compared."""
    flag: Flag | None = None
    """Why the losses are wrong; set only for a mismatch."""


NOT_CHECKED = LossCheck(state=CheckState.NOT_CHECKED)
"""The check of a trial whose losses are not known."""


def loss_checks(
    rows: Iterable[Row], losses: Losses, axes: Mapping[str, str]
) -> dict[str, LossCheck]:
    """Trial -> its check, for the ok rows; ``axes`` maps an axis to its column."""
    ok = [row for row in rows if row["outcome"] == Outcome.OK]
    checks: dict[str, LossCheck] = {}
    for in_environment in grouped(ok, itemgetter("environment_id")).values():
        checker = LossChecker(in_environment, losses, axes)
        checks |= {row["trial_id"]: checker.check(row) for row in in_environment}
    return checks


class LossChecker:
    """Compares rows of one environment, each with its references among them."""

    def __init__(self, rows: Iterable[Row], losses: Losses, axes: Mapping[str, str]) -> None:
        self._losses = losses
        self._axes = axes
        self._plainest_of_group: dict[Group, Row] = {}
        self._plainest_of_draws: dict[tuple[object, ...], Row] = {}
        self._plainest_on_one_gpu: dict[Group, Row] = {}
        """Those whose own comparison found no wrong scale, because most of them accumulate."""
        # The row nearest to the defaults has the fewest causes of a wrong loss.
        for row in sorted(rows, key=self._distance_to_defaults):
            own = losses.get(row["trial_id"], ())
            # Nothing can be compared with a loss that is not finite.
            if own and all(map(math.isfinite, own)):
                self._plainest_of_group.setdefault(_group(row), row)
                self._plainest_of_draws.setdefault(_draws(row, axes), row)
                if not row.get("world_size") and _scaling_flag(row) is None:
                    self._plainest_on_one_gpu.setdefault(_group(row), row)

    def _distance_to_defaults(self, row: Row) -> tuple[int, int]:
        changed = [
            axis
            for axis, column in self._axes.items()
            if axis in AXES and axis not in BATCH_AXES and row[column] != AXES[axis].default
        ]
        return row["accumulation"], len(changed)

    def losses_of(self, row: Row) -> Sequence[float]:
        """The losses of a row's steps; empty if they are not known."""
        return self._losses.get(row["trial_id"], ())

    def check(self, row: Row, losses: Sequence[float] | None = None) -> LossCheck:
        """What a row's losses say, or ``losses`` in their place."""
        # The trial itself compared the loss of a micro-batch with and without accumulation.
        if (scale_flag := _scaling_flag(row)) is not None:
            return LossCheck(state=CheckState.MISMATCH, flag=scale_flag)
        own = self.losses_of(row) if losses is None else losses
        steps = len(own)
        for step, loss in enumerate(own, 1):
            if not math.isfinite(loss):
                flag = Flag(FlagKind.LOSS_NOT_FINITE, step)
                return LossCheck(state=CheckState.MISMATCH, steps=steps, flag=flag)
        if not steps:
            return NOT_CHECKED
        comparisons = [self._compared_with(row, own, other) for other in self._references(row)]
        if comparisons:
            # The weakest comparison counts, but a mismatch with any reference is decisive.
            mismatches = [each for each in comparisons if each.state is CheckState.MISMATCH]
            return next(iter(mismatches), max(comparisons, key=lambda each: each.bound or 0.0))
        # The plainest of its group is the reference, if it was trained without accumulation.
        plainest = self._plainest_of_group[_group(row)]
        if row["accumulation"] == 1 and plainest["trial_id"] == row["trial_id"]:
            return LossCheck(state=CheckState.REFERENCE, steps=steps)
        return NOT_CHECKED

    def _compared_with(self, row: Row, own: Sequence[float], reference: Row) -> LossCheck:
        windows = compared(row, reference, own, self.losses_of(reference), self._axes)
        ratio = mismatch_ratio(windows)
        flag = None
        if ratio is not None:
            # A loss that is summed instead of averaged is too large by the accumulation; the means
            # of few noisy steps vary by up to a quarter.
            accumulation = row["accumulation"] / reference["accumulation"]
            is_summed = accumulation > 1 and 0.8 < ratio / accumulation < 1.25
            kind = FlagKind.LOSS_TIMES_ACCUMULATION if is_summed else FlagKind.LOSS_MISMATCH
            flag = Flag(kind, ratio)
        return LossCheck(
            state=state_of(windows),
            steps=windows[-1].end,
            bound=max(window.bound for window in windows),
            flag=flag,
        )

    def _references(self, row: Row) -> list[Row]:
        """The plainest row with the same draws, and that of its group, without the row itself. For
        a row of several GPUs also that on one GPU, which accumulates to the same batch."""
        candidates = [self._plainest_of_draws.get(_draws(row, self._axes)), self._of_group(row)]
        if row.get("world_size"):
            candidates.append(self._plainest_on_one_gpu.get(_group(row)))
        chosen = {other["trial_id"]: other for other in candidates if other is not None}
        chosen.pop(row["trial_id"], None)
        return list(chosen.values())

    def _of_group(self, row: Row) -> Row | None:
        """The plainest row of the same recipe and effective batch. If all accumulate, one that does
        not: of the same recipe at the nearest other batch, else of another recipe at the same
        batch."""
        recipe, batch = _group(row)
        plainest = self._plainest_of_group.get((recipe, batch))
        if plainest is None or plainest["accumulation"] == 1:
            return plainest
        neighbours: dict[tuple[bool, float], Row] = {}
        for (other_recipe, other_batch), other in self._plainest_of_group.items():
            has_other_recipe = other_recipe != recipe
            # With another length of samples, even the first loss is another one.
            is_near = not has_other_recipe or (
                other_batch == batch and same_workload(recipe_of(row), recipe_of(other))
            )
            if is_near and other["accumulation"] == 1:
                # The ratio of two batches is their distance: 8 is as far from 16 as 32 is.
                neighbours[has_other_recipe, abs(math.log(other_batch / batch))] = other
        return neighbours[min(neighbours)] if neighbours else plainest


def _scaling_flag(row: Row) -> Flag | None:
    """What the trial itself found of the loss of a micro-batch, with and without accumulation."""
    return scaling_flag(row.get("accumulation_loss_ratio"), row["accumulation"])


def _group(row: Row) -> Group:
    return row["training_recipe"], row["effective_batch"]


def _draws(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    """The values that decide a row's random numbers, its precision and its order of computation."""
    chosen = [row[column] for axis, column in axes.items() if axis not in _SAME_DRAWS]
    return (*_group(row), *chosen)


def compared(
    row: Row, reference: Row, own: Sequence[float], others: Sequence[float], axes: Mapping[str, str]
) -> tuple[LossWindow, ...]:
    """Compares the losses of a row, ``own``, with those of a reference, ``others``. Rows of
    different recipes are compared in the first step alone, which precedes every update."""
    has_same_draws = _draws(reference, axes) == _draws(row, axes)
    rounding = rounding_of(row, axes) if has_same_draws else None
    # Another effective batch sees other samples in each step.
    has_same_batch = row["effective_batch"] == reference["effective_batch"]
    if row["training_recipe"] != reference["training_recipe"]:
        own = own[:1]
    return loss_windows(own, others, rounding, 0.0 if has_same_batch else OTHER_BATCH)


def rounding_of(row: Row, axes: Mapping[str, str]) -> float:
    """By how much the losses of rows with the same draws may differ at a row's precision."""
    # A training argument such as ``bf16: true`` sets the precision, too.
    formats = [row.get(axes.get("precision", "precision")) or "fp32", row.get("autocast") or "off"]
    if "float16" in str(row.get("parameter_dtypes") or ""):
        formats.append("bf16_weights")
    return max(ROUNDING.get(str(name), 0.0) for name in formats)
