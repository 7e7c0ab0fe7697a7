"""Tie-breaks: close configurations measured again in interleaved rounds on one GPU (A B B A).

Interleaving lets a drift of the GPU, its temperature for example, affect all of them alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.record import Outcome
from jobs.spec import Purpose
from jobs.steady_state import relative_half_width
from orchestrator.analysis.configuration import Configuration
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedComparison:
    """The speed of one configuration divided by another's, round by round."""

    trial_id: str
    """The trial that a tie-break measured again."""
    reference_id: str
    """The trial that it is compared with."""
    ratio: float
    """Mean of the speed ratios of all rounds."""
    ci95: float
    """Half the ratio's 95 % interval (Student's t over the rounds), relative to it."""
    rounds: int

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the reference beyond chance."""
        return self.ratio * (1 - self.ci95) > 1

    @property
    def is_slower(self) -> bool:
        """Whether it is slower than the reference beyond chance."""
        return self.ratio * (1 + self.ci95) < 1


Round = tuple[int, str]
"""Number of a round, and the GPU's UUID."""


def paired_comparisons(rows: Iterable[Row]) -> tuple[PairedComparison, ...]:
    """The tie-breaks among the rows of one environment, each configuration against the first of its
    group.
    """
    groups: dict[tuple[str, ...], dict[Round, dict[str, float]]] = {}
    for row in rows:
        if _is_measured_round(row):
            rounds = groups.setdefault(tuple(row["compared_with"]), {})
            speeds = rounds.setdefault((row["round"], row.get("gpu_uuid") or ""), {})
            speeds[row["follows_trial"]] = row["samples_per_second"]
    found = []
    for group, rounds in groups.items():
        for trial_id in group[1:]:
            comparison = _comparison(trial_id, group[0], list(rounds.values()))
            if comparison is not None:
                found.append(comparison)
    return tuple(found)


def compared_with_first(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The comparisons of one of these configurations with the first of them."""
    if not configurations:
        return ()
    first = configurations[0].trial_ids
    others = {trial_id for own in configurations[1:] for trial_id in own.trial_ids}
    return tuple(
        comparison
        for comparison in comparisons
        if comparison.reference_id in first and comparison.trial_id in others
    )


def fastest_of(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> Configuration | None:
    """The first of these configurations, or the one that beat it in a tie-break by most.

    None where there is none.
    """
    winners = [c for c in compared_with_first(configurations, comparisons) if c.is_faster]
    if winners:
        best = max(winners, key=lambda comparison: comparison.ratio)
        return next(own for own in configurations if best.trial_id in own.trial_ids)
    return configurations[0] if configurations else None


def _is_measured_round(row: Row) -> bool:
    is_tie_break = row.get("purpose") == Purpose.TIE_BREAK and row["outcome"] == Outcome.OK
    return is_tie_break and bool(row.get("samples_per_second"))


def _comparison(
    trial_id: str, reference_id: str, rounds: Sequence[Mapping[str, float]]
) -> PairedComparison | None:
    """None with fewer than two rounds in which both were measured."""
    complete = [speeds for speeds in rounds if {trial_id, reference_id} <= speeds.keys()]
    ratios = [speeds[trial_id] / speeds[reference_id] for speeds in complete]
    if len(ratios) < 2:
        return None
    return PairedComparison(
        trial_id=trial_id,
        reference_id=reference_id,
        ratio=statistics.fmean(ratios),
        ci95=relative_half_width(ratios),
        rounds=len(ratios),
    )
