"""The references of a row: the rows whose losses it has to match, and how closely.

The reference of a group is the *plainest* row: the one with the fewest choices that are not
defaults. Two rows have the *same draws* if they draw the same random numbers, and compute in the
same order and precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jobs.techniques import AXES
from jobs.techniques.sample_kind import same_workload
from orchestrator.analysis.loss_parity.windows import ROUNDING, LossWindow, loss_windows
from orchestrator.storage.tables.rows import Row, recipe_of

OTHER_BATCH = 0.5
"""Further relative difference that is allowed if the reference has another effective batch.

Such a reference sees other samples in each step. The value is a round figure, not a measurement.
"""
_SAME_DRAWS = ("activations", "allocator", "dataloader")
"""Axes that change no random number and no order of computation."""
_BATCH_AXES = ("micro_batch", "accumulation")

Group = tuple[str, int]
"""Training recipe (as in the table) and effective batch."""


class References:
    """The rows of one environment, searched for the references of a row.

    All ``rows`` have finite losses. ``axes`` maps an axis to its column.
    """

    def __init__(self, rows: Iterable[Row], axes: Mapping[str, str]) -> None:
        self._axes = axes
        self._plainest_of_group: dict[Group, Row] = {}
        self._plainest_of_draws: dict[tuple[object, ...], Row] = {}
        # The row nearest to the defaults has the fewest causes of a wrong loss.
        for row in sorted(rows, key=self._distance_to_defaults):
            self._plainest_of_group.setdefault(_group(row), row)
            self._plainest_of_draws.setdefault(_draws(row, axes), row)

    def of(self, row: Row) -> list[Row]:
        """The references of a row: the plainest one with the same draws, and that of its group.

        The row itself is never in the list. The list may be empty.
        """
        candidates = (self._plainest_of_draws.get(_draws(row, self._axes)), self._of_group(row))
        chosen: dict[str, Row] = {}
        for candidate in candidates:
            if candidate is not None and candidate["trial_id"] != row["trial_id"]:
                chosen[candidate["trial_id"]] = candidate
        return list(chosen.values())

    def is_reference(self, row: Row) -> bool:
        """Whether a row is the plainest of its group and was trained without accumulation."""
        plainest = self._plainest_of_group.get(_group(row))
        if plainest is None or row["accumulation"] != 1:
            return False
        return bool(plainest["trial_id"] == row["trial_id"])

    def _of_group(self, row: Row) -> Row | None:
        """The plainest row of the same recipe and effective batch.

        If every row of this group accumulates, a neighbouring group without accumulation serves:
        the same recipe at the nearest other batch, else another recipe at the same batch.
        """
        group = _group(row)
        plainest = self._plainest_of_group.get(group)
        if plainest is None or plainest["accumulation"] == 1:
            return plainest
        neighbours: dict[tuple[bool, float], Row] = {}
        for (recipe, batch), other in self._plainest_of_group.items():
            has_other_recipe = recipe != group[0]
            is_near = not has_other_recipe
            if has_other_recipe and batch == group[1]:
                # With another length of samples, even the first loss is another one.
                is_near = same_workload(recipe_of(row), recipe_of(other))
            if is_near and other["accumulation"] == 1:
                # The ratio of two batches is their distance: 8 is as far from 16 as 32 is.
                neighbours[has_other_recipe, abs(math.log(batch / group[1]))] = other
        return neighbours[min(neighbours)] if neighbours else plainest

    def _distance_to_defaults(self, row: Row) -> tuple[int, int]:
        """Sort key: little accumulation first, then few axes that leave their default."""
        techniques = [axis for axis in self._axes if axis in AXES and axis not in _BATCH_AXES]
        changed = [axis for axis in techniques if row[self._axes[axis]] != AXES[axis].default]
        return row["accumulation"], len(changed)


def _group(row: Row) -> Group:
    return row["training_recipe"], row["effective_batch"]


def _draws(row: Row, axes: Mapping[str, str]) -> tuple[object, ...]:
    """The values that decide a row's random numbers, its precision and its order of computation."""
    chosen = [row[column] for axis, column in axes.items() if axis not in _SAME_DRAWS]
    return (*_group(row), *chosen)


def compared(
    row: Row,
    reference: Row,
    own: Sequence[float],
    others: Sequence[float],
    axes: Mapping[str, str],
) -> tuple[LossWindow, ...]:
    """Compares the losses of a row, ``own``, with those of a reference, ``others``.

    Rows of different recipes are compared in the first step alone. Its loss precedes every update,
    so the recipe does not affect it.
    """
    # Rows with the same draws may differ by rounding only. Other rows may also differ by chance.
    has_same_draws = _draws(reference, axes) == _draws(row, axes)
    rounding = rounding_of(row, axes) if has_same_draws else None
    # Another effective batch sees other samples in each step.
    has_same_batch = row["effective_batch"] == reference["effective_batch"]
    further = 0.0 if has_same_batch else OTHER_BATCH
    if row["training_recipe"] != reference["training_recipe"]:
        own = own[:1]
    return loss_windows(own, others, rounding, further)


def rounding_of(row: Row, axes: Mapping[str, str]) -> float:
    """By how much the losses of rows with the same draws may differ at a row's precision.

    The axis may not show the precision: a training argument such as ``bf16: true`` sets it, too.
    So the columns that were read from the trained model count as well.
    """
    formats = [row.get(axes.get("precision", "precision")) or "fp32", row.get("autocast") or "off"]
    # bfloat16 or float16 weights.
    if "float16" in str(row.get("parameter_dtypes") or ""):
        formats.append("bf16_weights")
    return max(ROUNDING.get(str(name), 0.0) for name in formats)
