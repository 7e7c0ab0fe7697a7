"""Recommends a configuration under constraints, and shows the alternatives.

candidates.py     what one could train with: as measured, or with more accumulation
interpolation.py  the same between two measured micro-batches
constraints.py    the objective, and what a candidate must keep
ranking.py        candidates in order; ``Ranking.pick`` is the only place that decides
alternatives.py   what other constraints would allow
recommend.py      one decision, with its runners-up and alternatives
result.py         a recommendation as data
longest.py        the longest samples that fit
"""

from orchestrator.analysis.recommendation.candidates import Basis, Offer
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.longest import LongestContext, longest_contexts
from orchestrator.analysis.recommendation.ranking import Ranked, Ranking, Rankings
from orchestrator.analysis.recommendation.recommend import recommend
from orchestrator.analysis.recommendation.result import Alternative, Recommendation

__all__ = [
    "Alternative",
    "Basis",
    "Constraints",
    "LongestContext",
    "Offer",
    "Ranked",
    "Ranking",
    "Rankings",
    "Recommendation",
    "longest_contexts",
    "recommend",
]
