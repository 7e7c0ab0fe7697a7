"""Recommends a configuration under constraints, and shows the alternatives.

``Ranking.pick`` is the only place that decides. ``recommend``, the budgets of the report, its
page, the Python API and the follow-ups of a sweep all use its decision:

- ``recommend(configurations, constraints, ...)``: one decision with its runners-up, the price of
  each constraint, and what was left out.
- ``Ranking.of(configurations, constraints, ...)`` and ``ranking.pick(memory_bytes)``: the decision
  alone, for many budgets.
- ``decision_steps(ranking)``: the decision for every possible budget, as steps.
- ``longest_contexts(configurations, memory_bytes, ...)``: the longest samples that fit.
"""

from orchestrator.analysis.recommendation.answer import (
    ConstraintCost,
    LeftOut,
    NearbyBatch,
    Recommendation,
)
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.decision import recommend
from orchestrator.analysis.recommendation.longest import LongestContext, longest_contexts
from orchestrator.analysis.recommendation.ranking import Ranking
from orchestrator.analysis.recommendation.steps import DecisionStep, decision_steps

__all__ = [
    "ConstraintCost",
    "Constraints",
    "DecisionStep",
    "LeftOut",
    "LongestContext",
    "NearbyBatch",
    "Ranking",
    "Recommendation",
    "decision_steps",
    "longest_contexts",
    "recommend",
]
