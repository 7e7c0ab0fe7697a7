"""Recommends the best candidate, with the runners-up and the cost of each constraint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.analysis.cap_checks import decisive_check
from orchestrator.analysis.recommendation.alternatives import constraint_costs, nearby_batches
from orchestrator.analysis.recommendation.candidates import Offer
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.ranking import Rankings
from orchestrator.analysis.recommendation.result import Recommendation
from orchestrator.analysis.tie_breaks import PairedComparison


def recommend(rankings: Rankings, constraints: Constraints) -> Recommendation:
    """The recommendation from the configurations of one environment.

    A configuration that failed a cap check of the memory asked for does not fit, whatever its peak
    was on the whole GPU. If its losses contradict their reference, it is left out and counted.
    """
    ranking = rankings.under(constraints)
    # The first is recommended. The others are the next best within the same constraints.
    ranked = ranking.ranked(constraints.memory_bytes)
    best = next(iter(ranked), None)
    first_of_techniques: dict[tuple[object, ...], Offer] = {}
    for candidate in ranked:
        first_of_techniques.setdefault(candidate.configuration.techniques, candidate)
    check = None
    if best is not None and not best.is_inferred and constraints.memory_bytes is not None:
        trial_ids = best.configuration.trial_ids
        check = decisive_check(rankings.checks, trial_ids, constraints.memory_bytes)
    # Some rows with wrong losses supply the memory and speed of a ranked candidate. The ranking
    # does not list these.
    wrong = ranking.trains_wrongly(constraints.memory_bytes)
    return Recommendation(
        constraints=constraints,
        best=best,
        runners_up=tuple(first_of_techniques.values())[1:5],
        costs=constraint_costs(rankings, constraints, ranked),
        left_out=tuple(wrong),
        left_out_better=sum(constraints.gains(each, best, 0.0) for each in wrong),
        nearby=nearby_batches(rankings, constraints, best),
        check=check,
        comparisons=_comparisons_of_best(ranked, rankings.comparisons),
    )


def _comparisons_of_best(
    ranked: Sequence[Offer], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The tie-breaks between the best and another candidate that meets the constraints."""
    if not ranked or ranked[0].is_inferred:
        return ()
    best_ids = set(ranked[0].configuration.trial_ids)
    ranked_ids: set[str] = set()
    for candidate in ranked:
        if not candidate.is_inferred:
            ranked_ids.update(candidate.configuration.trial_ids)
    of_best = []
    for comparison in comparisons:
        pair = {comparison.trial_id, comparison.reference_id}
        if pair <= ranked_ids and pair & best_ids:
            of_best.append(comparison)
    return tuple(of_best)
