"""Two trials' losses, step by step: how far apart they are, and how far the numerical guard lets them be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis import loss_parity
from orchestrator.analysis.pareto import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurves:
    """The steps that both have, warm-up included; where one's loss is no number, the curves end before it."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    halves: tuple[loss_parity.Half, ...]
    """What the guard compares; the reference is the first trial."""

    @property
    def furthest(self) -> int:
        """The step, from 0, at which they are furthest apart."""
        return max(
            range(len(self.after)), key=lambda step: abs(self.after[step] - self.before[step])
        )

    @property
    def agree(self) -> bool:
        """Whether the guard lets them be so far apart."""
        return all(half.apart <= half.allowed for half in self.halves)


def loss_curves(
    rows: tuple[Row, Row], losses: Mapping[str, Sequence[float]], axes: Mapping[str, str]
) -> LossCurves | None:
    """The curves of two trials, the second compared with the first; None where one has no losses."""
    first, second = rows
    pairs = list(zip(*(losses.get(row["trial_id"], ()) for row in rows), strict=False))
    sound = next(
        (step for step, pair in enumerate(pairs) if not all(map(math.isfinite, pair))), len(pairs)
    )
    if not sound:
        return None
    before, after = (tuple(curve) for curve in zip(*pairs[:sound], strict=True))
    return LossCurves(
        before=before, after=after, halves=loss_parity.compared(second, first, after, before, axes)
    )
