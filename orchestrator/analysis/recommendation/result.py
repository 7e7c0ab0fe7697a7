"""A recommendation as data."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.analysis.cap_checks import CapCheck
from orchestrator.analysis.recommendation.candidates import Offer
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.tie_breaks import PairedComparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """A candidate that another constraint would allow, or that is nearly as good."""

    constraint: str
    """The constraint that was loosened: memory, effective_batch or recipe.

    Or "less memory": nearly as good, but much smaller. Or "nearby batch": much faster, at an
    effective batch near the one asked for.
    """
    candidate: Offer
    ratio: float | None
    """The candidate's figure divided by that of the best.

    None if no candidate keeps all constraints.
    """

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step."""
        return self.candidate.effective_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The best configuration under constraints, its alternatives, and its checks."""

    constraints: Constraints
    best: Offer | None
    runners_up: tuple[Offer, ...]
    """The best candidate of each other set of techniques."""
    costs: tuple[Alternative, ...]
    """What loosening each constraint would gain, and what needing less memory would lose."""
    left_out: tuple[Offer, ...]
    """The candidates that meet the constraints, but have wrong losses; the best first."""
    left_out_better: int
    """How many of them are better than the best. Without a best, all are."""
    nearby: tuple[Alternative, ...] = ()
    """The nearest better effective batch below the one asked for, and the nearest above."""
    check: CapCheck | None = None
    """The cap check of the best. None if it was not checked: its fit is inferred from its peak."""
    comparisons: tuple[PairedComparison, ...] = ()
    """Tie-breaks between the best and other candidates."""

    def figure(self, candidate: Offer) -> float | None:
        """The objective's figure, in its own unit."""
        price = self.constraints.price_per_hour
        return self.constraints.objective.of(candidate.configuration, price)
