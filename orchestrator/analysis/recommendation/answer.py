"""A recommendation as data."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.cap_checks import CapCheck
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.tie_breaks import PairedComparison


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstraintCost:
    """What loosening one constraint would gain, or what needing less memory would lose."""

    constraint: str
    """memory, effective_batch or recipe. Or "less memory": nearly as good, but much smaller."""
    candidate: Candidate
    ratio: float | None
    """The candidate's figure divided by that of the best.

    None if no candidate keeps all constraints.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class NearbyBatch:
    """An effective batch near the one asked for, at which training is much faster."""

    effective_batch: int
    candidate: Candidate
    """The best candidate at this effective batch, under the same other constraints."""
    ratio: float | None
    """The candidate's figure divided by that of the best; None if there is no best."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """The candidates that meet the constraints, but have wrong losses."""

    count: int
    better: int
    """How many of them are better than the recommendation. Without a recommendation, all are."""
    best: Candidate | None
    """The best candidate that was left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The best configuration under constraints, its alternatives, and its checks."""

    constraints: Constraints
    best: Candidate | None
    runners_up: tuple[Candidate, ...]
    """The best candidate of each other set of techniques."""
    costs: tuple[ConstraintCost, ...]
    left_out: LeftOut
    nearby: tuple[NearbyBatch, ...] = ()
    """The nearest better effective batch below the one asked for, and the nearest above."""
    check: CapCheck | None = None
    """The cap check of the best. None if it was not checked: its fit is inferred from its peak."""
    comparisons: tuple[PairedComparison, ...] = ()
    """Tie-breaks between the best and other candidates."""

    def figure(self, candidate: Candidate) -> float | None:
        """The objective's figure, in its own unit."""
        price = self.constraints.price_per_hour
        return self.constraints.objective.of(candidate.configuration, price)
