"""Ranks the candidates under constraints, and picks the best one that fits a memory budget."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from jobs.spec import PLAIN, TrainingRecipe
from jobs.techniques.sample_kind import same_workload, workload_of
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.follow_up_results import CapCheck, PairedComparison, fastest_of
from orchestrator.analysis.grouping import grouped
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.recommendation.interpolation import candidates_between
from orchestrator.analysis.recommendation.offers import Offer, as_measured, candidates
from orchestrator.analysis.repeatability import NEARLY


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """Objective and constraints. Raises ValueError for a batch or price not above zero, or
    missing."""

    memory_bytes: int | None = None
    """The most that the configuration may take."""
    effective_batch: int | None = None
    """Samples per optimizer step."""
    all_recipes: bool = False
    """Whether other recipes than the baseline's, such as LoRA, are ranked together with it. Recipes
    with other samples, such as longer sequences, are if the objective can compare them."""
    objective: Objective = field(default_factory=lambda: OBJECTIVES["samples_per_second"])
    price_per_hour: float | None = None
    """Price of one GPU for an hour, in any currency."""

    def __post_init__(self) -> None:
        # Callers without a type checker give anything; numpy's integers are whole numbers, too.
        batch: Any = self.effective_batch
        if batch is not None and (not hasattr(batch, "__index__") or batch <= 0):
            raise ValueError("effective_batch must be a whole number above zero")
        self.objective.check_price(self.price_per_hour)

    def score(self, candidate: Offer) -> float:
        """How good a candidate is: more is better, whatever the objective."""
        return self.objective.score(candidate.configuration, self.price_per_hour)

    def ratio(self, candidate: Offer, best: Offer | None) -> float | None:
        """A candidate's figure divided by that of the best; None if there is no best."""
        if best is None:
            return None
        # If less is better, both scores are negative. Their ratio is still that of the figures.
        return self.score(candidate) / self.score(best)

    def gains(self, candidate: Offer, best: Offer | None, enough: float) -> bool:
        """Whether a candidate is better than the best by more than a share; True without a best."""
        if best is None:
            return True
        # If less is better, scores are negative. So the share is taken of the absolute value.
        best_score = self.score(best)
        return self.score(candidate) - best_score > enough * abs(best_score)

    def allow_training(self, candidate: Offer, recipe: TrainingRecipe) -> bool:
        """Whether a candidate's recipe is ranked, and has a figure to be ranked by."""
        is_allowed = self.allow_recipe(candidate.configuration.training_recipe, recipe)
        return is_allowed and self.score(candidate) != -math.inf

    def allow_recipe(self, own: TrainingRecipe, recipe: TrainingRecipe) -> bool:
        """Whether configurations of a recipe are ranked together with those of ``recipe``."""
        return own == recipe or (self.all_recipes and not self.other_samples(own, recipe))

    def other_samples(self, own: TrainingRecipe, recipe: TrainingRecipe) -> bool:
        """Whether the samples of two recipes differ so that the objective cannot compare them."""
        return not (self.objective.of_any_samples or same_workload(own, recipe))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A candidate, with the smallest budget that it fits, or from which on it is the pick."""

    candidate: Offer
    least_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The candidates of one environment that keep all constraints except the memory, in order. What
    failed a cap check fits no budget up to that cap, whatever its peak on the whole GPU."""

    ordered: tuple[Ranked, ...]
    """Best first; of equally good ones, the least memory first."""
    wrong: tuple[Ranked, ...]
    """The candidates with wrong losses, in the same order."""
    comparisons: tuple[PairedComparison, ...]
    """The tie-breaks that count; none unless candidates are ranked by speed."""

    def ranked(self, memory_bytes: float | None = None) -> list[Offer]:
        """All candidates that fit, the pick first. Without ``memory_bytes`` all fit."""
        fitting = _fitting(self.ordered, memory_bytes)
        # Interleaved rounds on one GPU show smaller differences than separate trials do.
        if not fitting or fitting[0].is_inferred or not self.comparisons:
            return fitting
        measured = [each for each in fitting if not each.is_inferred]
        fastest = fastest_of([each.configuration for each in measured], self.comparisons)
        winner = next(each for each in measured if each.configuration is fastest)
        return [winner, *(candidate for candidate in fitting if candidate is not winner)]

    def pick(self, memory_bytes: float | None = None) -> Offer | None:
        """The best candidate within a memory budget; None if nothing fits."""
        return next(iter(self.ranked(memory_bytes)), None)

    def trains_wrongly(self, memory_bytes: float | None = None) -> list[Offer]:
        """The candidates that fit but have wrong losses, the best first."""
        return _fitting(self.wrong, memory_bytes)

    def decision_steps(self) -> tuple[Ranked, ...]:
        """What ``pick`` returns at every budget, smallest first; it changes at a few budgets only.
        The decision for a budget is the last step whose ``least_bytes`` is not above the budget."""
        least_bytes = {id(own.candidate): own.least_bytes for own in self.ordered}
        steps: list[Ranked] = []
        # From the largest budget down: each turn finds the smallest budget with the same decision.
        budget = math.inf
        while (pick := self.pick(budget)) is not None:
            first = next(own for own in self.ordered if own.least_bytes <= budget)
            # A smaller budget changes the decision if the pick no longer fits, or the first
            # candidate, against which the pick may have won a tie-break.
            begin = max(first.least_bytes, least_bytes[id(pick)])
            if steps and steps[-1].candidate is pick:
                steps.pop()
            steps.append(Ranked(least_bytes=begin, candidate=pick))
            # Budgets are whole bytes: one byte less is the next smaller budget.
            budget = begin - 1
        return tuple(reversed(steps))


def _fitting(ordered: Iterable[Ranked], memory_bytes: float | None) -> list[Offer]:
    limit = math.inf if memory_bytes is None else memory_bytes
    return [ranked.candidate for ranked in ordered if ranked.least_bytes <= limit]


@dataclass(frozen=True, eq=False)
class Rankings:
    """The rankings of one environment's configurations, under any constraints. Candidates are kept
    by effective batch, their order by objective, and rankings by constraints other than memory."""

    configurations: Sequence[Configuration]
    recipe: TrainingRecipe = PLAIN
    checks: Sequence[CapCheck] = ()
    comparisons: Sequence[PairedComparison] = ()
    _candidates: dict[int | None, Sequence[Offer]] = field(default_factory=dict, init=False)
    _ordered: dict[Constraints, list[Ranked]] = field(default_factory=dict, init=False)
    _rankings: dict[tuple[Constraints, TrainingRecipe], Ranking] = field(
        default_factory=dict, init=False
    )

    def under(self, constraints: Constraints, recipe: TrainingRecipe | None = None) -> Ranking:
        """The ranking for every memory budget; ``recipe`` takes the place of the ranked one."""
        key = (replace(constraints, memory_bytes=None), recipe or self.recipe)
        if key not in self._rankings:
            self._rankings[key] = self._ranking(*key)
        return self._rankings[key]

    def serving(self, effective_batch: int | None) -> Sequence[Offer]:
        """What can serve an effective batch; None: all configurations as they were measured."""
        if effective_batch not in self._candidates:
            listed = list(candidates(self.configurations, effective_batch))
            if effective_batch is not None:
                listed += candidates_between(self.configurations, effective_batch)
            self._candidates[effective_batch] = listed
        return self._candidates[effective_batch]

    def _in_order(self, constraints: Constraints) -> list[Ranked]:
        """The candidates of all recipes with a figure to be ranked by, the best first."""
        key = replace(constraints, all_recipes=True)
        if key not in self._ordered:
            self._ordered[key] = self._sorted(constraints)
        return self._ordered[key]

    def _sorted(self, constraints: Constraints) -> list[Ranked]:
        def order(candidate: Offer) -> tuple[float, int]:
            score = constraints.score(candidate)
            if candidate.is_inferred:
                # Its figures are bounds, so it ranks before a measured one only if it is clearly
                # better. Scores are negative if less is better, hence the absolute value.
                score -= NEARLY * abs(score)
            return score, -candidate.memory_bytes

        listed = self.serving(constraints.effective_batch)
        known = [each for each in listed if constraints.score(each) != -math.inf]
        failed_caps: dict[str, int] = {}
        for check in self.checks:
            if check.fails:
                largest = max(check.budget_bytes, failed_caps.get(check.follows_trial, 0))
                failed_caps[check.follows_trial] = largest
        return [
            Ranked(candidate=candidate, least_bytes=_least_bytes(candidate, failed_caps))
            for candidate in sorted(known, key=order, reverse=True)
        ]

    def _ranking(self, constraints: Constraints, recipe: TrainingRecipe) -> Ranking:
        ranked = [
            own
            for own in self._in_order(constraints)
            if constraints.allow_recipe(own.candidate.configuration.training_recipe, recipe)
        ]
        by_soundness = grouped(ranked, attrgetter("candidate.configuration.trains_wrongly"))
        # A tie-break compares speeds, so it says nothing about energy or price.
        by_speed = constraints.objective is OBJECTIVES["samples_per_second"]
        return Ranking(
            ordered=tuple(by_soundness.get(False, ())),
            wrong=tuple(by_soundness.get(True, ())),
            comparisons=tuple(self.comparisons) if by_speed else (),
        )


def _least_bytes(candidate: Offer, failed_caps: dict[str, int]) -> int:
    """The smallest budget that a candidate fits: above every cap under which it failed."""
    # It may fit one byte more.
    own = candidate.measured.trial_ids
    beyond_caps = [failed_caps[each] + 1 for each in own if each in failed_caps]
    return max([candidate.memory_bytes, *beyond_caps])


class Reason(enum.StrEnum):
    """Why a configuration is not ranked. The first that holds counts."""

    OTHER_SAMPLES = "other_samples"
    """Its samples are others, such as longer or packed ones, so no speed per sample compares."""
    OTHER_RECIPE = "other_recipe"
    """It learns something else."""
    WRONG_LOSSES = "wrong_losses"
    NO_FIGURE = "no_figure"
    """The objective's figure was not measured."""
    OTHER_BATCH = "other_batch"
    """It cannot serve the effective batch, or a configuration with more accumulation does."""
    MEMORY = "memory"
    """It does not fit the budget."""


def not_ranked(
    rankings: Rankings, constraints: Constraints
) -> Mapping[Reason, list[Configuration]]:
    """Reason -> the configurations that the ranking lacks for it; those of no reason are ranked."""
    ranked = _used(rankings.under(constraints).ranked(constraints.memory_bytes))
    serving = _used(rankings.serving(constraints.effective_batch))

    def reason(configuration: Configuration) -> Reason | None:
        if configuration in ranked:
            return None
        offer = as_measured(configuration)
        if not constraints.allow_recipe(configuration.training_recipe, rankings.recipe):
            other = constraints.other_samples(configuration.training_recipe, rankings.recipe)
            return Reason.OTHER_SAMPLES if other else Reason.OTHER_RECIPE
        if configuration.trains_wrongly:
            return Reason.WRONG_LOSSES
        if constraints.score(offer) == -math.inf:
            return Reason.NO_FIGURE
        return Reason.MEMORY if configuration in serving else Reason.OTHER_BATCH

    reasons = grouped(rankings.configurations, reason)
    return {kind: reasons[kind] for kind in Reason if kind in reasons}


def _used(offers: Iterable[Offer]) -> set[Configuration | None]:
    return {own for offer in offers for own in (offer.measured, offer.larger)}


def best_of_other_samples(rankings: Rankings, constraints: Constraints) -> tuple[Offer, ...]:
    """The pick of each kind of sample that cannot be compared; most tokens per second first."""
    picks = []
    recipes = {own.training_recipe: None for own in rankings.configurations}
    for members in grouped(recipes, workload_of).values():
        if not constraints.other_samples(members[0], rankings.recipe):
            continue
        found = [rankings.under(constraints, own).pick(constraints.memory_bytes) for own in members]
        offers = [offer for offer in found if offer is not None]
        if offers:
            picks.append(max(offers, key=constraints.score))
    return tuple(sorted(picks, key=lambda own: -(own.configuration.real_tokens_per_second or 0.0)))
