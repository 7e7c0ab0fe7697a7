"""The decision for every possible memory budget. It changes at a few budgets only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.recommendation.ranking import Ranking


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionStep:
    """The decision for all budgets from ``least_bytes`` up to the next step."""

    least_bytes: int
    """The smallest budget with this decision."""
    candidate: Candidate


def decision_steps(ranking: Ranking) -> tuple[DecisionStep, ...]:
    """The decisions of a ranking, smallest budget first.

    The decision for a budget is the last step whose ``least_bytes`` is not above the budget. Below
    the first step nothing fits. ``ranking.pick(budget)`` returns the same decision.
    """
    least_bytes = {id(own.candidate): own.least_bytes for own in ranking.ordered}
    steps: list[DecisionStep] = []
    # From the largest budget down: each turn finds the smallest budget with the same decision.
    budget = math.inf
    while True:
        pick = ranking.pick(budget)
        if pick is None:
            break
        fitting = [own.candidate for own in ranking.ordered if own.least_bytes <= budget]
        # A smaller budget changes the decision in two cases: the pick no longer fits, or the first
        # candidate does not. The pick may have won a tie-break against that first candidate.
        begin = max(least_bytes[id(fitting[0])], least_bytes[id(pick)])
        if steps and steps[-1].candidate is pick:
            steps.pop()
        steps.append(DecisionStep(least_bytes=begin, candidate=pick))
        # Budgets are whole bytes: one byte less is the next smaller budget.
        budget = begin - 1
    return tuple(reversed(steps))
