"""Ranks the candidates, and picks the best one that fits a memory budget."""

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
"""An inferred configuration ranks before a measured one only if it is better by this share.

Its figures are bounds, so a small advantage over a measurement is not certain.
"""


def all_candidates(
    configurations: Sequence[Configuration], effective_batch: int | None
) -> list[Candidate]:
    """Everything that can serve an effective batch: measured, or inferred from measured ones.

    If ``effective_batch`` is None, these are all configurations as they were measured.
    """
    serving = list(candidates(configurations, effective_batch))
    if effective_batch is not None:
        serving += candidates_between(configurations, effective_batch)
    return serving


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A candidate of a ranking, with the smallest budget that it fits."""

    candidate: Candidate
    least_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The candidates of one environment that keep all constraints except the memory, in order.

    A configuration that failed a cap check fits no budget up to that cap, whatever its peak was on
    the whole GPU.
    """

    constraints: Constraints
    """All constraints except the memory."""
    recipe: TrainingRecipe
    """The training recipe that is ranked, unless the constraints allow all recipes."""
    ordered: tuple[Ranked, ...]
    """Best first; of equally good ones, the least memory first."""
    wrong: tuple[Ranked, ...]
    """The candidates with wrong losses, in the same order."""
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
        """All candidates that fit, the pick first. Without ``memory_bytes`` all fit."""
        fitting = _fitting(self.ordered, memory_bytes)
        # Interleaved rounds on one GPU show smaller differences than separate trials do.
        winner = self._tie_break_winner(fitting)
        if winner is None:
            return fitting
        others = [candidate for candidate in fitting if candidate is not winner]
        return [winner, *others]

    def pick(self, memory_bytes: float | None = None) -> Candidate | None:
        """The best candidate within a memory budget; None if nothing fits."""
        for candidate in self.ranked(memory_bytes):
            return candidate
        return None

    def trains_wrongly(self, memory_bytes: float | None = None) -> list[Candidate]:
        """The candidates that fit but have wrong losses, the best first.

        A row is not listed if its memory and speed serve a candidate that trains correctly.
        """
        # Configurations have no equality, so each is known by its identity.
        evidence = {id(ranked.candidate.evidence) for ranked in self.ordered}
        wrong = _fitting(self.wrong, memory_bytes)
        return [each for each in wrong if id(each.configuration) not in evidence]

    def _tie_break_winner(self, fitting: Sequence[Candidate]) -> Candidate | None:
        """The winner of a tie-break with the first of the fitting candidates; None without one."""
        # A tie-break compares speeds, so it says nothing about energy or price.
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
    """The candidates that the constraints allow, the best first."""
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
    """Sort key, more is better: the score (less if inferred), then little memory."""
    score = constraints.score(candidate)
    if candidate.is_inferred:
        # Scores are negative if less is better, as for energy. Subtracting a share of the absolute
        # value lowers both kinds.
        score -= PREFERENCE_FOR_MEASURED * abs(score)
    return score, -candidate.configuration.memory_bytes


def _failed_caps(checks: Iterable[CapCheck]) -> dict[str, int]:
    """Trial -> the largest cap under which it failed."""
    failed: dict[str, int] = {}
    for check in checks:
        if check.fails:
            largest = max(check.budget_bytes, failed.get(check.follows_trial, 0))
            failed[check.follows_trial] = largest
    return failed


def _least_bytes(candidate: Candidate, failed_caps: dict[str, int]) -> int:
    """The smallest budget that a candidate fits.

    It is the candidate's memory, and more than every cap under which the candidate failed.
    """
    trial_ids = list(candidate.measured.trial_ids)
    if candidate.basis is Basis.WRONG_LOSS_SCALE and candidate.evidence is not None:
        trial_ids += candidate.evidence.trial_ids
    # A candidate that failed under a cap fails under every smaller cap. It may fit one byte more.
    least = candidate.configuration.memory_bytes
    for trial_id in trial_ids:
        if trial_id in failed_caps:
            least = max(least, failed_caps[trial_id] + 1)
    return least
