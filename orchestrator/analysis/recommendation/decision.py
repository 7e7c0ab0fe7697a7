"""Recommends the best candidate, with the runners-up and the cost of each constraint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.cap_checks import CapCheck, decisive_check
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation.answer import LeftOut, Recommendation
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.costs import constraint_costs
from orchestrator.analysis.recommendation.interpolation import techniques_of
from orchestrator.analysis.recommendation.nearby_batches import nearby_batches
from orchestrator.analysis.recommendation.ranking import Ranking, all_candidates
from orchestrator.analysis.tie_breaks import PairedComparison

MAX_RUNNERS_UP = 4


def recommend(
    configurations: Iterable[Configuration],
    constraints: Constraints,
    recipe: TrainingRecipe = PLAIN,
    checks: Sequence[CapCheck] = (),
    comparisons: Sequence[PairedComparison] = (),
) -> Recommendation:
    """The recommendation from the configurations of one environment.

    ``recipe`` is the training recipe that is ranked. A configuration that failed a cap check of the
    memory asked for does not fit, whatever its peak was on the whole GPU. If its losses contradict
    their reference, it is left out and counted.
    """
    rankings = _Rankings(tuple(configurations), recipe, checks, comparisons)
    ranking = rankings.rank(constraints)
    # The first is recommended. The others are the next best within the same constraints.
    ranked = ranking.ranked(constraints.memory_bytes)
    best = None
    if ranked:
        best = ranked[0]
    return Recommendation(
        constraints=constraints,
        best=best,
        runners_up=tuple(_one_per_technique_set(ranked)[1 : MAX_RUNNERS_UP + 1]),
        costs=constraint_costs(rankings.rank, constraints, ranked),
        left_out=_left_out(ranking, constraints, best),
        nearby=nearby_batches(rankings.rank_few, rankings.configurations, constraints, best),
        check=_check_of(best, constraints, checks),
        comparisons=_comparisons_of_best(ranked, comparisons),
    )


class _Rankings:
    """Rankings of the same configurations under several constraints.

    Inferring candidates takes most of the time, and loosened constraints infer the same ones. So
    candidates are kept for each effective batch, and rankings for each set of constraints.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        recipe: TrainingRecipe,
        checks: Sequence[CapCheck],
        comparisons: Sequence[PairedComparison],
    ) -> None:
        self.configurations = configurations
        self._recipe = recipe
        self._checks = checks
        self._comparisons = comparisons
        self._candidates: dict[int | None, list[Candidate]] = {}
        self._rankings: dict[Constraints, Ranking] = {}

    def rank(self, constraints: Constraints) -> Ranking:
        """The ranking of all configurations; made once for all memory budgets."""
        # One ranking answers for every memory budget, so rankings are kept without it.
        unlimited = replace(constraints, memory_bytes=None)
        if unlimited not in self._rankings:
            self._rankings[unlimited] = Ranking.of_candidates(
                self._serving(unlimited.effective_batch),
                unlimited,
                self._recipe,
                self._checks,
                self._comparisons,
            )
        return self._rankings[unlimited]

    def rank_few(self, few: Sequence[Configuration], constraints: Constraints) -> Ranking:
        """The ranking of some of the configurations, which is not kept."""
        return Ranking.of(few, constraints, self._recipe, self._checks, self._comparisons)

    def _serving(self, effective_batch: int | None) -> list[Candidate]:
        """All candidates for an effective batch, inferred once."""
        if effective_batch not in self._candidates:
            candidates = all_candidates(self.configurations, effective_batch)
            self._candidates[effective_batch] = candidates
        return self._candidates[effective_batch]


def _check_of(
    best: Candidate | None, constraints: Constraints, checks: Sequence[CapCheck]
) -> CapCheck | None:
    """The cap check of the best; None if the best is inferred or was not checked."""
    if best is None or best.is_inferred or constraints.memory_bytes is None:
        return None
    return decisive_check(checks, best.configuration.trial_ids, constraints.memory_bytes)


def _left_out(ranking: Ranking, constraints: Constraints, best: Candidate | None) -> LeftOut:
    """The candidates that keep all constraints, but have wrong losses."""
    # Some rows with wrong losses supply the memory and speed of a ranked candidate. The ranking
    # does not list these.
    wrong = ranking.trains_wrongly(constraints.memory_bytes)
    better = wrong
    if best is not None:
        score = constraints.score(best)
        better = [candidate for candidate in wrong if constraints.score(candidate) > score]
    best_wrong = None
    if wrong:
        best_wrong = wrong[0]
    return LeftOut(count=len(wrong), better=len(better), best=best_wrong)


def _comparisons_of_best(
    ranked: Sequence[Candidate], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The tie-breaks between the best and another candidate that meets the constraints."""
    if not ranked or ranked[0].is_inferred:
        return ()
    ranked_ids: set[str] = set()
    for candidate in ranked:
        if not candidate.is_inferred:
            ranked_ids.update(candidate.configuration.trial_ids)
    best_ids = set(ranked[0].configuration.trial_ids)
    of_best = []
    for comparison in comparisons:
        pair = {comparison.trial_id, comparison.reference_id}
        if pair <= ranked_ids and pair & best_ids:
            of_best.append(comparison)
    return tuple(of_best)


def _one_per_technique_set(ranked: Iterable[Candidate]) -> list[Candidate]:
    """The first candidate of each set of techniques, whatever its batch."""
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in ranked:
        first.setdefault(techniques_of(candidate.configuration), candidate)
    return list(first.values())
