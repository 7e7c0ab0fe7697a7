"""What each constraint costs: what loosening it would gain, and what less memory would lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.recommendation.answer import ConstraintCost
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.ranking import Ranking

WORTH_MENTIONING = 0.02
"""Loosening a constraint is mentioned if it gains more than this share."""
NEARLY = 0.05
"""A configuration counts as nearly as good as the best if it is worse by at most this share."""
LESS_MEMORY = 0.8
"""Such a configuration is mentioned if it needs at most this share of the best one's memory."""

MakeRanking = Callable[[Constraints], Ranking]
"""Ranks the same configurations under other constraints."""


def constraint_costs(
    rank: MakeRanking, constraints: Constraints, ranked: Sequence[Candidate]
) -> tuple[ConstraintCost, ...]:
    """The costs of the constraints that are set.

    ``ranked`` are the candidates that meet all constraints, the best first.
    """
    best = None
    if ranked:
        best = ranked[0]
    costs = []
    for name, candidate in _alternatives(rank, constraints, ranked):
        ratio = ratio_to(candidate, best, constraints)
        costs.append(ConstraintCost(constraint=name, candidate=candidate, ratio=ratio))
    return tuple(costs)


def _alternatives(
    rank: MakeRanking, constraints: Constraints, ranked: Sequence[Candidate]
) -> Iterator[tuple[str, Candidate]]:
    """(constraint, the candidate that would be best without it)."""
    best = None
    if ranked:
        best = ranked[0]
    # More memory is offered in two steps: the next larger card, and the largest gain.
    for candidate in _more_memory(rank, constraints, best):
        yield "memory", candidate
    for name, looser in _loosened(constraints).items():
        candidate_or_none = rank(looser).pick(looser.memory_bytes)
        if candidate_or_none is not None and gains(candidate_or_none, best, constraints):
            yield name, candidate_or_none
    less = _less_memory(ranked, constraints)
    if less is not None:
        yield "less memory", less


def _loosened(constraints: Constraints) -> dict[str, Constraints]:
    """Name of a constraint -> all constraints without this one.

    Memory is not among them, because it is loosened in steps.
    """
    looser = {}
    if constraints.effective_batch is not None:
        looser["effective_batch"] = replace(constraints, effective_batch=None)
    if not constraints.all_recipes:
        looser["recipe"] = replace(constraints, all_recipes=True)
    return looser


def _more_memory(
    rank: MakeRanking, constraints: Constraints, best: Candidate | None
) -> list[Candidate]:
    """Two candidates beyond the memory limit: the smallest that gains enough, and the best."""
    limit = constraints.memory_bytes
    if limit is None:
        return []
    better = []
    for candidate in rank(constraints).ranked():
        is_beyond = candidate.configuration.memory_bytes > limit
        if is_beyond and gains(candidate, best, constraints):
            better.append(candidate)
    if not better:
        return []
    smallest = min(better, key=_memory_bytes)
    gains_most = better[0]
    if smallest is gains_most:
        return [smallest]
    return [smallest, gains_most]


def _less_memory(ranked: Sequence[Candidate], constraints: Constraints) -> Candidate | None:
    """The candidate with least memory that is nearly as good as the best.

    None if no such candidate needs a fifth less memory than the best.
    """
    if not ranked:
        return None
    best = ranked[0]
    # Nearly as good and much smaller: both bounds relative to the best.
    best_score = constraints.score(best)
    floor = best_score - NEARLY * abs(best_score)
    ceiling = LESS_MEMORY * _memory_bytes(best)
    near = []
    for candidate in ranked:
        if constraints.score(candidate) >= floor and _memory_bytes(candidate) <= ceiling:
            near.append(candidate)
    return min(near, key=_memory_bytes, default=None)


def _memory_bytes(candidate: Candidate) -> int:
    return candidate.configuration.memory_bytes


def ratio_to(
    candidate: Candidate, best: Candidate | None, constraints: Constraints
) -> float | None:
    """A candidate's figure divided by that of the best; None if there is no best."""
    if best is None:
        return None
    # If less is better, both scores are negative. Their ratio is still the ratio of the figures.
    return constraints.score(candidate) / constraints.score(best)


def gains(
    candidate: Candidate,
    best: Candidate | None,
    constraints: Constraints,
    enough: float = WORTH_MENTIONING,
) -> bool:
    """Whether a candidate is better than the best by more than the share ``enough``.

    True if there is no best.
    """
    if best is None:
        return True
    best_score = constraints.score(best)
    # If less is better, scores are negative. So the share is taken of the absolute value.
    return constraints.score(candidate) - best_score > enough * abs(best_score)
