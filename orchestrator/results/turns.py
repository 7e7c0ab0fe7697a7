"""Close configurations told apart: measured again in turns, one GPU for all, so that its drift touches them alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.record import Outcome
from jobs.steady import relative_half_width
from orchestrator.results.frontier import Row

COMPARISON = "comparison"
"""The purpose of such trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairing:
    """One configuration's speed to another's, turn by turn."""

    one: str
    """The trial that made it a candidate."""
    other: str
    ratio: float
    """The one's speed to the other's, the mean of all turns."""
    error: float
    """Half the ratio's 95 % confidence interval (Student's t over the turns), relative to it."""
    turns: int

    @property
    def is_faster(self) -> bool:
        """Whether the one is faster beyond chance."""
        return self.ratio * (1 - self.error) > 1

    @property
    def is_slower(self) -> bool:
        """Whether it is slower beyond chance."""
        return self.ratio * (1 + self.error) < 1


def pairings(rows: Iterable[Row]) -> tuple[Pairing, ...]:
    """The rows of one environment that were measured in turns, each configuration against the first of its company."""
    speeds: dict[tuple[str, ...], dict[tuple[int, str], dict[str, float]]] = {}
    for row in rows:
        if row.get("purpose") == COMPARISON and row["outcome"] == Outcome.OK and row.get("samples_per_second"):
            turns = speeds.setdefault(tuple(row["among"]), {})
            turn = turns.setdefault((row["turn"], row.get("gpu_uuid") or ""), {})
            turn[row["follows"]] = row["samples_per_second"]
    found = (_pairing(one, among[0], list(turns.values())) for among, turns in speeds.items() for one in among[1:])
    return tuple(pairing for pairing in found if pairing is not None)


def _pairing(one: str, other: str, turns: Sequence[Mapping[str, float]]) -> Pairing | None:
    ratios = [turn[one] / turn[other] for turn in turns if {one, other} <= turn.keys()]
    if len(ratios) < 2:
        return None
    error = relative_half_width(ratios)
    return Pairing(one=one, other=other, ratio=statistics.fmean(ratios), error=error, turns=len(ratios))
