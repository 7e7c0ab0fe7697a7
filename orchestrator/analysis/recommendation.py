"""What to train with: the best configuration under constraints, the next ones, and what each
constraint costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.accumulation import Candidate, candidates
from orchestrator.analysis.cap_checks import CapCheck, decisive_check
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES, Objective
from orchestrator.analysis.tie_breaks import PairedComparison, fastest_of

MAX_RUNNERS_UP = 4
WORTH_MENTIONING = 0.02
"""Loosening a constraint is not mentioned if it gains less than this."""
PREFERENCE_FOR_MEASURED = 0.05
"""An inferred configuration must be better than a measured one by this much to take its place."""
NEARLY = 0.05
"""How much worse still counts as nearly as good, if it needs less memory."""
LESS_MEMORY = 0.8
"""How much of the memory a nearly as good configuration may need."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraints:
    """What a person wants, and under which constraints."""

    memory_bytes: int | None = None
    effective_batch: int | None = None
    all_recipes: bool = False
    """Whether other training recipes than the baseline's (another optimizer, LoRA) are ranked with
    it.
    """
    require_loss_parity: bool = False
    """Only rows whose losses match their reference."""
    objective: Objective = field(default_factory=lambda: OBJECTIVES["samples_per_second"])
    price_per_hour: float | None = None
    """Of one GPU, in any currency."""

    def score(self, candidate: Candidate) -> float:
        """How good a candidate is: more is better, whatever the objective."""
        return self.objective.score(candidate.configuration, self.price_per_hour)

    def allow(self, candidate: Candidate, recipe: TrainingRecipe) -> bool:
        """Whether a candidate keeps the constraints."""
        own = candidate.configuration
        fits = self.memory_bytes is None or own.memory_bytes <= self.memory_bytes
        has_recipe = self.all_recipes or own.training_recipe == recipe
        has_parity = not (self.require_loss_parity and own.loss_flags)
        return fits and has_recipe and has_parity and self.score(candidate) != -math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstraintCost:
    """What loosening one constraint would gain, or what needing less memory would lose."""

    constraint: str
    """memory, effective_batch, recipe or loss_parity; "less memory" for a nearly as good
    configuration.
    """
    candidate: Candidate
    ratio: float | None
    """The candidate's figure divided by the best one's.

    None where nothing keeps all constraints.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Recommendation:
    """The answer under constraints."""

    constraints: Constraints
    best: Candidate | None
    runners_up: tuple[Candidate, ...]
    """The best of each further set of techniques."""
    costs: tuple[ConstraintCost, ...]
    refused: int
    """Candidates within memory that were refused because their losses do not match."""
    check: CapCheck | None = None
    """A cap check in which the best fitted; None: its fit is inferred from its peak."""
    comparisons: tuple[PairedComparison, ...] = ()
    """Tie-breaks between the best and other candidates."""

    def figure(self, candidate: Candidate) -> float | None:
        """The objective's figure, in its own unit."""
        price = self.constraints.price_per_hour
        return self.constraints.objective.of(candidate.configuration, price)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranking:
    """Everything that a ranking depends on but the constraints."""

    configurations: tuple[Configuration, ...]
    recipe: TrainingRecipe
    comparisons: tuple[PairedComparison, ...]

    def ranked(self, constraints: Constraints) -> list[Candidate]:
        """All candidates that keep the constraints: best first, then least memory first."""
        allowed = [
            candidate
            for candidate in candidates(self.configurations, constraints.effective_batch)
            if constraints.allow(candidate, self.recipe)
        ]
        allowed.sort(key=lambda candidate: _place(candidate, constraints), reverse=True)
        return self._tie_broken(allowed, constraints)

    def _tie_broken(self, ranked: Sequence[Candidate], constraints: Constraints) -> list[Candidate]:
        """The same with a tie-break's winner first, where speed is the objective."""
        by_speed = constraints.objective is OBJECTIVES["samples_per_second"]
        if not ranked or not by_speed or ranked[0].is_inferred:
            return list(ranked)
        measured = [own.configuration for own in ranked if not own.is_inferred]
        winner = fastest_of(measured, self.comparisons)
        return sorted(ranked, key=lambda candidate: candidate.configuration is not winner)


def recommend(
    configurations: Iterable[Configuration],
    constraints: Constraints,
    recipe: TrainingRecipe = PLAIN,
    checks: Sequence[CapCheck] = (),
    comparisons: Sequence[PairedComparison] = (),
) -> Recommendation:
    """The answer from the configurations of one environment; ``recipe`` is the one that is ranked.

    A configuration that failed a cap check of the memory asked for is out, whatever its peak was on
    the whole GPU.
    """
    known = [own for own in configurations if not _has_failed(own, constraints, checks)]
    ranking = _Ranking(configurations=tuple(known), recipe=recipe, comparisons=tuple(comparisons))
    ranked = ranking.ranked(constraints)
    best = ranked[0] if ranked else None
    check = None
    if best is not None and not best.is_inferred:
        check = _check_of(best.configuration, constraints, checks)
    return Recommendation(
        constraints=constraints,
        best=best,
        runners_up=tuple(_one_per_technique_set(ranked)[1 : MAX_RUNNERS_UP + 1]),
        costs=_costs(ranking, constraints, ranked),
        refused=_refused(known, constraints, recipe),
        check=check,
        comparisons=_comparisons_of_best(ranked, comparisons),
    )


def _check_of(
    configuration: Configuration, constraints: Constraints, checks: Sequence[CapCheck]
) -> CapCheck | None:
    if constraints.memory_bytes is None:
        return None
    return decisive_check(checks, configuration.trial_ids, constraints.memory_bytes)


def _has_failed(
    configuration: Configuration, constraints: Constraints, checks: Sequence[CapCheck]
) -> bool:
    check = _check_of(configuration, constraints, checks)
    return check is not None and not check.fits


def _place(candidate: Candidate, constraints: Constraints) -> tuple[float, int]:
    """Sort key, more is better: the score, discounted where it is inferred, then little memory."""
    score = constraints.score(candidate)
    discount = PREFERENCE_FOR_MEASURED * abs(score) if candidate.is_inferred else 0.0
    return score - discount, -candidate.configuration.memory_bytes


def _refused(
    configurations: Sequence[Configuration], constraints: Constraints, recipe: TrainingRecipe
) -> int:
    """How many candidates only the requirement of loss parity rules out."""
    if not constraints.require_loss_parity:
        return 0
    looser = replace(constraints, require_loss_parity=False)
    allowed = [
        candidate
        for candidate in candidates(configurations, constraints.effective_batch)
        if looser.allow(candidate, recipe)
    ]
    return sum(bool(candidate.configuration.loss_flags) for candidate in allowed)


def _comparisons_of_best(
    ranked: Sequence[Candidate], comparisons: Iterable[PairedComparison]
) -> tuple[PairedComparison, ...]:
    """The tie-breaks that the best took part in, with others that keep the constraints."""
    if not ranked or ranked[0].is_inferred:
        return ()
    measured = [own.configuration for own in ranked if not own.is_inferred]
    ids = {trial_id for own in measured for trial_id in own.trial_ids}
    best_ids = set(ranked[0].configuration.trial_ids)
    found = []
    for comparison in comparisons:
        pair = {comparison.trial_id, comparison.reference_id}
        if pair <= ids and pair & best_ids:
            found.append(comparison)
    return tuple(found)


def _one_per_technique_set(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each set of techniques, the batch left out."""
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in ranked:
        choices = candidate.configuration.choices
        techniques = tuple(
            value for axis, value in choices.items() if axis not in ("micro_batch", "accumulation")
        )
        first.setdefault(techniques, candidate)
    return list(first.values())


def _costs(
    ranking: _Ranking, constraints: Constraints, ranked: Sequence[Candidate]
) -> tuple[ConstraintCost, ...]:
    best = ranked[0] if ranked else None
    found = [("memory", candidate) for candidate in _more_memory(ranking, constraints, best)]
    for name, looser in _loosened(constraints).items():
        for candidate in ranking.ranked(looser)[:1]:
            if _gains(candidate, best, constraints):
                found.append((name, candidate))
    if best is not None:
        leaner = _less_memory(ranked, constraints)
        if leaner is not None:
            found.append(("less memory", leaner))
    return tuple(
        ConstraintCost(
            constraint=name, candidate=candidate, ratio=_ratio(candidate, best, constraints)
        )
        for name, candidate in found
    )


def _loosened(constraints: Constraints) -> dict[str, Constraints]:
    """Constraint -> the constraints without it, for those that are set; memory is loosened in steps
    instead.
    """
    looser = {}
    if constraints.effective_batch is not None:
        looser["effective_batch"] = replace(constraints, effective_batch=None)
    if constraints.require_loss_parity:
        looser["loss_parity"] = replace(constraints, require_loss_parity=False)
    if not constraints.all_recipes:
        looser["recipe"] = replace(constraints, all_recipes=True)
    return looser


def _more_memory(
    ranking: _Ranking, constraints: Constraints, best: Candidate | None
) -> list[Candidate]:
    """The smallest step beyond the memory limit that gains enough, and the one that gains most."""
    limit = constraints.memory_bytes
    if limit is None:
        return []
    without_limit = ranking.ranked(replace(constraints, memory_bytes=None))
    beyond = [own for own in without_limit if own.configuration.memory_bytes > limit]
    better = [own for own in beyond if _gains(own, best, constraints)]
    if not better:
        return []
    leanest = min(better, key=lambda candidate: candidate.configuration.memory_bytes)
    most = better[0]
    return [leanest] if leanest is most else [leanest, most]


def _less_memory(ranked: Sequence[Candidate], constraints: Constraints) -> Candidate | None:
    """The candidate with least memory among those nearly as good as the best, if it needs a fifth
    less.
    """
    best = ranked[0]
    best_score = constraints.score(best)
    floor = best_score - NEARLY * abs(best_score)
    ceiling = LESS_MEMORY * best.configuration.memory_bytes
    near = [
        candidate
        for candidate in ranked
        if constraints.score(candidate) >= floor and candidate.configuration.memory_bytes <= ceiling
    ]
    return min(near, key=lambda candidate: candidate.configuration.memory_bytes, default=None)


def _ratio(candidate: Candidate, best: Candidate | None, constraints: Constraints) -> float | None:
    if best is None:
        return None
    return constraints.score(candidate) / constraints.score(best)


def _gains(candidate: Candidate, best: Candidate | None, constraints: Constraints) -> bool:
    """Whether it is better than the best by enough to be mentioned; anything is, where there is no
    best.
    """
    if best is None:
        return True
    best_score = constraints.score(best)
    return constraints.score(candidate) - best_score > WORTH_MENTIONING * abs(best_score)
