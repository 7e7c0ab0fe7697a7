"""What follow-ups show: whether picks fit their budgets, and which close configuration is faster.

A *cap check* runs a pick again, its GPU's memory capped to the budget. A *tie-break* measures close
configurations again in interleaved rounds on one GPU (A B B A), which spreads a drift, for example
of the GPU's temperature, evenly over all of them.
"""

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jobs.record import Outcome
from jobs.spec import Purpose
from jobs.steady_state import relative_half_width
from orchestrator.analysis.configuration import Configuration
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class CapCheck:
    """A configuration that ran again with no more device memory than a budget, context included."""

    trial_id: str
    follows_trial: str
    budget_bytes: int
    outcome: Outcome
    memory_bytes: int | None
    """The peak that NVML reported; None if the trial ended before a peak was read."""
    samples_per_second: float | None

    @property
    def fits(self) -> bool:
        """Whether the trial ended ok and took no more memory than the budget."""
        is_ok = self.outcome is Outcome.OK
        return is_ok and self.memory_bytes is not None and self.memory_bytes <= self.budget_bytes

    @property
    def fails(self) -> bool:
        """Whether the trial shows that it does not fit; a crash, a timeout or a trial whose peak
        was not read shows nothing."""
        is_over = self.outcome is Outcome.OK and (self.memory_bytes or 0) > self.budget_bytes
        return is_over or self.outcome is Outcome.OUT_OF_MEMORY


def cap_checks(rows: Iterable[Row]) -> tuple[CapCheck, ...]:
    return tuple(
        CapCheck(
            trial_id=row["trial_id"],
            follows_trial=row["follows_trial"],
            budget_bytes=row["memory_cap_bytes"],
            outcome=Outcome(row["outcome"]),
            memory_bytes=row.get("device_peak_bytes"),
            samples_per_second=row.get("samples_per_second"),
        )
        for row in rows
        if row.get("purpose") == Purpose.CAP_CHECK and row["outcome"] != Outcome.SKIPPED
    )


def decisive_check(
    checks: Iterable[CapCheck], trial_ids: Sequence[str], budget_bytes: float
) -> CapCheck | None:
    """The check that settles whether a configuration fits a budget; None if no check does."""
    # What fits under a cap fits under every larger one, and what fails under every smaller one.
    own = [check for check in checks if check.follows_trial in trial_ids]
    failing = [check for check in own if check.fails and check.budget_bytes >= budget_bytes]
    fitting = [check for check in own if check.fits and check.budget_bytes <= budget_bytes]
    # The cap nearest to the budget says most about it.
    budget = attrgetter("budget_bytes")
    return min(failing, key=budget, default=None) or max(fitting, key=budget, default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedComparison:
    """The speed of one configuration divided by another's, round by round."""

    trial_id: str
    """The trial that a tie-break measured again."""
    reference_id: str
    ratio: float
    """Mean of the speed ratios of all rounds."""
    ci95: float
    """Half the 95 % interval of the ratio, as a share of it (Student's t over the rounds). It is
    wider with several challengers, because each is one more chance of a false winner."""
    rounds: int

    @property
    def is_faster(self) -> bool:
        """Whether it is faster than the reference beyond chance."""
        return self.ratio * (1 - self.ci95) > 1

    @property
    def is_slower(self) -> bool:
        """Whether it is slower than the reference beyond chance."""
        return self.ratio * (1 + self.ci95) < 1


def paired_comparisons(rows: Iterable[Row]) -> tuple[PairedComparison, ...]:
    """The tie-breaks among the rows of one environment: in each group, all against the first."""
    comparisons = []
    for (reference_id, *others), rounds in _rounds_by_group(rows).items():
        for trial_id in others:
            both = [each for each in rounds if trial_id in each and reference_id in each]
            # A single round has no interval.
            if len(both) > 1:
                # Both speeds of a round have nearly the same temperature: the drift cancels out.
                ratios = [speeds[trial_id] / speeds[reference_id] for speeds in both]
                comparisons.append(
                    PairedComparison(
                        trial_id=trial_id,
                        reference_id=reference_id,
                        ratio=statistics.fmean(ratios),
                        ci95=relative_half_width(ratios, intervals=len(others)),
                        rounds=len(ratios),
                    )
                )
    return tuple(comparisons)


def _rounds_by_group(rows: Iterable[Row]) -> dict[tuple[str, ...], list[dict[str, float]]]:
    """The trials that a tie-break compares -> for each round, samples per second by trial."""
    groups: dict[tuple[str, ...], dict[tuple[int, str], dict[str, float]]] = {}
    for row in rows:
        is_tie_break = row.get("purpose") == Purpose.TIE_BREAK and row["outcome"] == Outcome.OK
        if is_tie_break and row.get("samples_per_second"):
            # Rounds are paired on one GPU only: another GPU of the model may be faster.
            rounds = groups.setdefault(tuple(row["compared_with"]), {})
            speeds = rounds.setdefault((row["round"], row.get("gpu_uuid") or ""), {})
            speeds[row["follows_trial"]] = row["samples_per_second"]
    return {group: list(rounds.values()) for group, rounds in groups.items()}


def compared_with_first(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The comparisons of one of these configurations with the first of them."""
    if not configurations:
        return ()
    first_ids, *others = (configuration.trial_ids for configuration in configurations)
    other_ids = set(itertools.chain(*others))
    with_first = [own for own in comparisons if own.reference_id in first_ids]
    return tuple(own for own in with_first if own.trial_id in other_ids)


def fastest_of(
    configurations: Sequence[Configuration], comparisons: Iterable[PairedComparison]
) -> Configuration | None:
    """The first, or the one that beat it most clearly in a tie-break; None if there are none."""
    # Comparisons are made with the first of the group, so only the first can be beaten.
    with_first = compared_with_first(configurations, comparisons)
    won = [comparison for comparison in with_first if comparison.is_faster]
    if not won:
        return next(iter(configurations), None)
    winner_id = max(won, key=attrgetter("ratio")).trial_id
    return next(each for each in configurations if winner_id in each.trial_ids)
