"""The decision: candidates in order, and the first of them that fits a memory budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.accumulation import Basis, Candidate, candidates
from orchestrator.analysis.cap_checks import CapCheck
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation.constraints import Constraints
from orchestrator.analysis.recommendation.interpolation import candidates_between
from orchestrator.analysis.tie_breaks import PairedComparison, fastest_of

PREFERENCE_FOR_MEASURED = 0.05
"""An inferred configuration must be better than a measured one by this much to take its place."""


def all_candidates(
    configurations: Sequence[Configuration], effective_batch: int | None
) -> list[Candidate]:
    """Everything that can serve an effective batch: measured, accumulated more, or in between.

    None: every configuration as it was measured.
    """
    serving = list(candidates(configurations, effective_batch))
    if effective_batch is not None:
        serving += candidates_between(configurations, effective_batch)
    return serving


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A candidate in an order, with the smallest budget that it fits."""

    candidate: Candidate
    least_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The candidates of one environment that keep all constraints but the memory, in order.

    A configuration that failed a cap check fits no budget up to that cap, whatever its peak was on
    the whole GPU.
    """

    constraints: Constraints
    """Without the memory."""
    recipe: TrainingRecipe
    """The one that is ranked, unless the constraints rank all."""
    ordered: tuple[Ranked, ...]
    """Best first; of equally good ones, the least memory first."""
    wrong: tuple[Ranked, ...]
    """In the same order: those that train something else than their reference."""
    comparisons: tuple[PairedComparison, ...]

    @classmethod
    def of(
        cls,
        configurations: Iterable[Configuration],
        constraints: Constraints,
        recipe: TrainingRecipe = PLAIN,
        checks: Sequence[CapCheck] = (),
        comparisons: Sequence[PairedComparison] = (),
    ) -> Ranking:
        """The ranking of one environment's configurations; ``recipe`` is the one that is ranked."""
        serving = all_candidates(list(configurations), constraints.effective_batch)
        return cls.of_candidates(serving, constraints, recipe, checks, comparisons)

    @classmethod
    def of_candidates(
        cls,
        serving: Iterable[Candidate],
        constraints: Constraints,
        recipe: TrainingRecipe = PLAIN,
        checks: Sequence[CapCheck] = (),
        comparisons: Sequence[PairedComparison] = (),
    ) -> Ranking:
        """The ranking of all candidates that serve the constraints' effective batch."""
        constraints = replace(constraints, memory_bytes=None)
        failed_caps = _failed_caps(checks)
        ordered: list[Ranked] = []
        wrong: list[Ranked] = []
        for candidate in _in_order(serving, constraints, recipe):
            ranked = Ranked(candidate=candidate, least_bytes=_least_bytes(candidate, failed_caps))
            if candidate.configuration.trains_wrongly:
                wrong.append(ranked)
            else:
                ordered.append(ranked)
        return cls(
            constraints=constraints,
            recipe=recipe,
            ordered=tuple(ordered),
            wrong=tuple(wrong),
            comparisons=tuple(comparisons),
        )

    def ranked(self, memory_bytes: float | None = None) -> list[Candidate]:
        """All candidates that fit, the decision first; None fits any memory."""
        fitting = _fitting(self.ordered, memory_bytes)
        # Interleaved rounds on one GPU tell apart what separate trials could not.
        winner = self._tie_break_winner(fitting)
        if winner is None:
            return fitting
        return [winner, *(own for own in fitting if own is not winner)]

    def pick(self, memory_bytes: float | None = None) -> Candidate | None:
        """The decision within a memory budget; None where nothing fits."""
        for candidate in self.ranked(memory_bytes):
            return candidate
        return None

    def trains_wrongly(self, memory_bytes: float | None = None) -> list[Candidate]:
        """What would fit, but trains something else than its reference; the best first.

        A row is left out of this list where its figures serve a candidate that trains correctly.
        """
        # Configurations have no equality, so each is known by its identity.
        evidence = {id(ranked.candidate.evidence) for ranked in self.ordered}
        wrong = _fitting(self.wrong, memory_bytes)
        return [own for own in wrong if id(own.configuration) not in evidence]

    def _tie_break_winner(self, fitting: Sequence[Candidate]) -> Candidate | None:
        """What beat the first of the fitting candidates in a tie-break, where speed is the
        objective; None where that one stays first.
        """
        # A tie-break says which is faster; it knows no energy and no price.
        by_speed = self.constraints.objective is OBJECTIVES["samples_per_second"]
        if not fitting or not by_speed or fitting[0].is_inferred or not self.comparisons:
            return None
        measured = {}
        for candidate in fitting:
            if not candidate.is_inferred:
                measured[id(candidate.configuration)] = candidate
        configurations = [candidate.configuration for candidate in measured.values()]
        winner = fastest_of(configurations, self.comparisons)
        return measured[id(winner)]


def _in_order(
    serving: Iterable[Candidate], constraints: Constraints, recipe: TrainingRecipe
) -> list[Candidate]:
    """The candidates whose training is asked for, the best first."""
    allowed: list[Candidate] = []
    for candidate in serving:
        if constraints.allow_training(candidate, recipe):
            allowed.append(candidate)

    def order(candidate: Candidate) -> tuple[float, int]:
        return _order(candidate, constraints)

    return sorted(allowed, key=order, reverse=True)


def _fitting(ordered: Iterable[Ranked], memory_bytes: float | None) -> list[Candidate]:
    # No limit: everything fits.
    limit = math.inf
    if memory_bytes is not None:
        limit = memory_bytes
    return [ranked.candidate for ranked in ordered if ranked.least_bytes <= limit]


def _order(candidate: Candidate, constraints: Constraints) -> tuple[float, int]:
    """Sort key, more is better: the score, discounted where it is inferred, then little memory."""
    score = constraints.score(candidate)
    if candidate.is_inferred:
        # The score may be negative (energy), and less is worse then, too.
        score -= PREFERENCE_FOR_MEASURED * abs(score)
    return score, -candidate.configuration.memory_bytes


def _failed_caps(checks: Iterable[CapCheck]) -> dict[str, int]:
    """Trial -> the largest cap that it was seen not to fit."""
    failed: dict[str, int] = {}
    for check in checks:
        if check.fails:
            largest = max(check.budget_bytes, failed.get(check.follows_trial, 0))
            failed[check.follows_trial] = largest
    return failed


def _least_bytes(candidate: Candidate, failed_caps: dict[str, int]) -> int:
    """The smallest budget that a candidate fits: its memory, and beyond every cap it failed."""
    trial_ids = list(candidate.measured.trial_ids)
    if candidate.basis is Basis.WRONG_LOSS_SCALE and candidate.evidence is not None:
        trial_ids += candidate.evidence.trial_ids
    # What failed under a cap fails under every smaller one, so one byte more is the least.
    least = candidate.configuration.memory_bytes
    for trial_id in trial_ids:
        if trial_id in failed_caps:
            least = max(least, failed_caps[trial_id] + 1)
    return least
