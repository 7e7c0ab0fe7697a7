"""The decision for every memory budget there is: it changes only at a few sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.recommendation.ranking import Ranking


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionStep:
    """The decision from one budget up to the next step's."""

    least_bytes: int
    """The smallest budget with this decision."""
    candidate: Candidate


def decision_steps(ranking: Ranking) -> tuple[DecisionStep, ...]:
    """The decisions of a ranking, smallest budget first.

    For a budget the last step counts whose ``least_bytes`` is not above it; below the first step
    nothing fits. ``ranking.pick(budget)`` says the same at every budget.
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
        # A smaller budget changes the decision only if the pick no longer fits, or the first in
        # the order, whose tie-break the pick may have won.
        begin = max(least_bytes[id(fitting[0])], least_bytes[id(pick)])
        if steps and steps[-1].candidate is pick:
            steps.pop()
        steps.append(DecisionStep(least_bytes=begin, candidate=pick))
        # Budgets are whole bytes: one byte less is the next smaller budget.
        budget = begin - 1
    return tuple(reversed(steps))
