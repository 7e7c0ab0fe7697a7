"""Recommends a configuration under constraints, and shows the alternatives.

offers.py         what one could train with: as measured, or with more accumulation
interpolation.py  the same between two measured micro-batches
ranking.py        candidates in order, by an objective and constraints; ``Ranking.pick`` is the only
                  place that decides
decision.py       one decision, with its runners-up and what the constraints cost
longest.py        the longest samples that fit
"""

from orchestrator.analysis.recommendation.decision import Alternative, Recommendation, recommend
from orchestrator.analysis.recommendation.longest import LongestContext, longest_contexts
from orchestrator.analysis.recommendation.offers import Offer
from orchestrator.analysis.recommendation.ranking import Constraints, Rankings

__all__ = [
    "Alternative",
    "Constraints",
    "LongestContext",
    "Offer",
    "Rankings",
    "Recommendation",
    "longest_contexts",
    "recommend",
]
