"""The losses of two trials, step by step: by how much they differ, and how much is allowed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.loss_parity import CheckState, LossWindow, compared, state_of
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurves:
    """The steps that both trials have, up to the first loss that is not finite."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    windows: tuple[LossWindow, ...]
    """What loss parity compares; the reference is the first trial."""
    state: CheckState
    """The result of loss parity: matches, mismatch or not checked."""

    @property
    def furthest_step(self) -> int:
        """The step, counted from 0, at which the two losses differ most."""
        differences = [abs(b - a) for a, b in zip(self.before, self.after, strict=True)]
        return differences.index(max(differences))


def loss_curves(
    rows: tuple[Row, Row], losses: Mapping[str, Sequence[float]], axes: Mapping[str, str]
) -> LossCurves | None:
    """The curves of two trials, the second compared with the first.

    None if one of them has no finite loss.
    """
    first, second = rows
    before = losses.get(first["trial_id"], ())
    after = losses.get(second["trial_id"], ())
    # Losses after one that is not finite cannot be compared.
    pairs = zip(before, after, strict=False)
    steps = len(list(itertools.takewhile(lambda pair: all(map(math.isfinite, pair)), pairs)))
    if not steps:
        return None
    windows = compared(second, first, after[:steps], before[:steps], axes)
    return LossCurves(
        before=tuple(before[:steps]),
        after=tuple(after[:steps]),
        windows=windows,
        state=state_of(windows),
    )
