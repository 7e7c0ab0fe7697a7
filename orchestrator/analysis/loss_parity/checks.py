"""Checks the losses of every row against those of its references."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.flags import Flag, FlagKind
from jobs.loss_scaling import scaling_flag
from jobs.record import Outcome
from orchestrator.analysis.loss_parity.references import References, compared
from orchestrator.analysis.loss_parity.windows import CheckState, mismatch_ratio, state_of
from orchestrator.storage.tables.rows import Row

Losses = Mapping[str, Sequence[float]]
"""Trial -> its losses per optimizer step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCheck:
    """What the losses of one trial say about its training."""

    state: CheckState
    steps: int = 0
    """How many steps the last comparison covers; 0 if there was none."""
    bound: float | None = None
    """Every relative difference beyond this is detected, in each comparison.

    None if nothing was compared.
    """
    reference_id: str = ""
    """The reference of the comparison that decided; empty if nothing was compared."""
    flag: Flag | None = None
    """Why the losses are wrong; set only for a mismatch."""


NOT_CHECKED = LossCheck(state=CheckState.NOT_CHECKED)
"""The check of a trial whose losses are not known."""


def loss_checks(
    rows: Iterable[Row], losses: Losses, axes: Mapping[str, str]
) -> dict[str, LossCheck]:
    """Trial -> its check, for the ok rows; ``axes`` maps an axis to its column."""
    by_environment: dict[str, list[Row]] = {}
    for row in rows:
        if row["outcome"] == Outcome.OK:
            by_environment.setdefault(row["environment_id"], []).append(row)
    checks: dict[str, LossCheck] = {}
    for in_environment in by_environment.values():
        # Nothing can be compared with a loss that is not finite.
        finite = []
        for row in in_environment:
            losses_of_row = losses.get(row["trial_id"], ())
            if losses_of_row and all(map(math.isfinite, losses_of_row)):
                finite.append(row)
        references = References(finite, axes)
        for row in in_environment:
            checks[row["trial_id"]] = _check(row, references, losses, axes)
    return checks


def _check(row: Row, references: References, losses: Losses, axes: Mapping[str, str]) -> LossCheck:
    # The trial itself compared the loss of one micro-batch with and without accumulation, with
    # the same random numbers.
    scale_flag = scaling_flag(row.get("accumulation_loss_ratio"), row["accumulation"])
    if scale_flag is not None:
        return LossCheck(state=CheckState.MISMATCH, flag=scale_flag)
    losses_of_row = losses.get(row["trial_id"], ())
    steps = len(losses_of_row)
    for step, loss in enumerate(losses_of_row, 1):
        if not math.isfinite(loss):
            flag = Flag(FlagKind.LOSS_NOT_FINITE, step)
            return LossCheck(state=CheckState.MISMATCH, steps=steps, flag=flag)
    comparisons = []
    if steps:
        comparisons = [_comparison(row, other, losses, axes) for other in references.of(row)]
    if comparisons:
        # The weakest comparison counts, but a mismatch with any reference is decisive.
        mismatches = [each for each in comparisons if each.state is CheckState.MISMATCH]
        return next(iter(mismatches), max(comparisons, key=lambda each: each.bound or 0.0))
    if steps and references.is_reference(row):
        return LossCheck(state=CheckState.REFERENCE, steps=steps)
    return NOT_CHECKED


def _comparison(row: Row, reference: Row, losses: Losses, axes: Mapping[str, str]) -> LossCheck:
    """The check against one reference."""
    own = losses[row["trial_id"]]
    windows = compared(row, reference, own, losses[reference["trial_id"]], axes)
    # By how much the losses differ, and whether the accumulation explains it.
    ratio = mismatch_ratio(windows)
    flag = None
    if ratio is not None:
        # A loss that is summed instead of averaged is too large by the factor of the
        # accumulations. The means of few noisy steps vary, so a ratio within a quarter of it
        # counts. The bounds are reciprocal: 0.8 = 1 / 1.25.
        accumulation = row["accumulation"] / reference["accumulation"]
        is_summed = accumulation > 1 and 0.8 < ratio / accumulation < 1.25
        kind = FlagKind.LOSS_TIMES_ACCUMULATION if is_summed else FlagKind.LOSS_MISMATCH
        flag = Flag(kind, ratio)
    return LossCheck(
        state=state_of(windows),
        steps=windows[-1].end,
        bound=max(window.bound for window in windows),
        reference_id=reference["trial_id"],
        flag=flag,
    )
