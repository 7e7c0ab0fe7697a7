"""Close configurations told apart: measured again in turns, one GPU for all, so that its drift touches them alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.record import Outcome
from jobs.steady_state import relative_half_width
from orchestrator.analysis.pareto import Point, Row
from orchestrator.units import error

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

    def in_words(self, named: Mapping[str, str]) -> str:
        """Which is faster, by how much, and how sure that is, in a sentence; ``named`` maps the two to their names."""
        one, other, ratio = named[self.one], named[self.other], self.ratio
        how = f"(in turns on one GPU, {self.turns} of each)"
        if not (self.is_faster or self.is_slower):
            change = f"{100 * (ratio - 1):+.1f} % {error(self.error)}"
            return f"No difference found between {other} and {one}: {change} {how}."
        if self.is_slower:
            one, other, ratio = other, one, 1 / ratio
        return f"{one} is {100 * (ratio - 1):.1f} % {error(self.error)} faster than {other} {how}."


def pairings(rows: Iterable[Row]) -> tuple[Pairing, ...]:
    """The rows of one environment that were measured in turns, each configuration against the first of its company."""
    speeds: dict[tuple[str, ...], dict[tuple[int, str], dict[str, float]]] = {}
    for row in rows:
        if (
            row.get("purpose") == COMPARISON
            and row["outcome"] == Outcome.OK
            and row.get("samples_per_second")
        ):
            turns = speeds.setdefault(tuple(row["among"]), {})
            turn = turns.setdefault((row["turn"], row.get("gpu_uuid") or ""), {})
            turn[row["follows"]] = row["samples_per_second"]
    found = (
        _pairing(one, among[0], list(turns.values()))
        for among, turns in speeds.items()
        for one in among[1:]
    )
    return tuple(pairing for pairing in found if pairing is not None)


def against_the_first(points: Sequence[Point], pairings: Iterable[Pairing]) -> tuple[Pairing, ...]:
    """Those of the pairings that compare one of these points with the first of them."""
    first, others = points[:1], points[1:]
    return tuple(
        pairing
        for pairing in pairings
        if any(pairing.other in point.trial_ids for point in first)
        and any(pairing.one in point.trial_ids for point in others)
    )


def fastest_in_turns(points: Sequence[Point], pairings: Iterable[Pairing]) -> Point | None:
    """The first of these points, or the one that was faster than it in turns, by most; None where there is none."""
    faster = (pairing for pairing in against_the_first(points, pairings) if pairing.is_faster)
    by_most = max(faster, key=lambda pairing: pairing.ratio, default=None)
    named = [point for point in points if by_most and by_most.one in point.trial_ids]
    return next(iter((*named, *points)), None)


def _pairing(one: str, other: str, turns: Sequence[Mapping[str, float]]) -> Pairing | None:
    ratios = [turn[one] / turn[other] for turn in turns if {one, other} <= turn.keys()]
    if len(ratios) < 2:
        return None
    mean, half_width = statistics.fmean(ratios), relative_half_width(ratios)
    return Pairing(one=one, other=other, ratio=mean, error=half_width, turns=len(ratios))
