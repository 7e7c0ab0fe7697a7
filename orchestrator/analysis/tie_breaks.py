"""Tie-breaks: close configurations measured again in interleaved rounds on one GPU (A B B A).

Interleaving spreads a drift, for example of the GPU's temperature, evenly over all of them.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

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
    """Half the 95 % interval of the ratio, as a share of it (Student's t over the rounds)."""
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
Speeds = dict[str, float]
"""Trial that was measured again -> samples per second."""
Group = tuple[str, ...]
"""The trials that a tie-break compares; the first is the reference."""


def paired_comparisons(rows: Iterable[Row]) -> tuple[PairedComparison, ...]:
    """The tie-breaks among the rows of one environment.

    In each group, every configuration is compared with the first.
    """
    comparisons = []
    for group, rounds in _rounds_by_group(rows).items():
        for trial_id in group[1:]:
            comparison = _comparison(trial_id, group[0], list(rounds.values()))
            if comparison is not None:
                comparisons.append(comparison)
    return tuple(comparisons)


def _rounds_by_group(rows: Iterable[Row]) -> dict[Group, dict[Round, Speeds]]:
    groups: dict[Group, dict[Round, Speeds]] = {}
    for row in rows:
        is_tie_break = row.get("purpose") == Purpose.TIE_BREAK and row["outcome"] == Outcome.OK
        if is_tie_break and row.get("samples_per_second"):
            # Rounds are paired on one GPU only: another GPU of the model may be faster.
            rounds = groups.setdefault(tuple(row["compared_with"]), {})
            speeds = rounds.setdefault((row["round"], row.get("gpu_uuid") or ""), {})
            speeds[row["follows_trial"]] = row["samples_per_second"]
    return groups


def _comparison(
    trial_id: str, reference_id: str, rounds: Sequence[Mapping[str, float]]
) -> PairedComparison | None:
    """The comparison of two trials; None if fewer than two rounds measured both."""
    ratios = []
    for speeds in rounds:
        if trial_id in speeds and reference_id in speeds:
            ratios.append(speeds[trial_id] / speeds[reference_id])
    # A single round has no interval.
    if len(ratios) < 2:
        return None
    return PairedComparison(
        trial_id=trial_id,
        reference_id=reference_id,
        # Both speeds of a round have nearly the same temperature, so the drift cancels out.
        ratio=statistics.fmean(ratios),
        ci95=relative_half_width(ratios),
        rounds=len(ratios),
    )


def compared_with_first(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The comparisons of one of these configurations with the first of them."""
    if not configurations:
        return ()
    first_ids, *others = (configuration.trial_ids for configuration in configurations)
    other_ids = set(itertools.chain(*others))
    with_first = []
    for comparison in comparisons:
        if comparison.reference_id in first_ids and comparison.trial_id in other_ids:
            with_first.append(comparison)
    return tuple(with_first)


def fastest_of(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> Configuration | None:
    """The first of these configurations, or the one that beat it most clearly in a tie-break.

    None if there are no configurations.
    """
    if not configurations:
        return None
    # Comparisons are made with the first of the group, so only the first can be beaten.
    with_first = compared_with_first(configurations, comparisons)
    won = [comparison for comparison in with_first if comparison.is_faster]
    if not won:
        return configurations[0]
    winner_id = max(won, key=attrgetter("ratio")).trial_id
    return next(each for each in configurations if winner_id in each.trial_ids)
