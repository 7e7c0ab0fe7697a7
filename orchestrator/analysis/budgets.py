"""The fastest configuration within each memory budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.cap_checks import CapCheck, decisive_check
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.recommendation import Constraints, Ranking
from orchestrator.analysis.repeatability import difference_error
from orchestrator.analysis.tie_breaks import PairedComparison, compared_with_first
from orchestrator.units import GIB

CLOSE = 0.01
"""Speeds that differ by less than this share are close, even if their intervals are narrower."""
MAX_CONTENDERS = 3
CARD_SIZES = tuple(size * GIB for size in (4, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180))
"""Memory in bytes of common GPUs: the budgets of a run that names none."""
_POWERS_OF_TWO = tuple(2**power for power in range(20, 33))
"""1 MiB to 4 GiB: the budgets of a run that takes less memory than the smallest GPU has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPick:
    """The fastest configuration within a memory budget, if any fits."""

    budget_bytes: int
    best: Configuration | None
    """The fastest of the ranked training recipe."""
    other: Configuration | None = None
    """The fastest of all other recipes, if it is faster than ``best``."""
    failed: tuple[Configuration, ...] = ()
    """Configurations whose peaks fit, but which failed a cap check; the fastest first."""
    left_out: tuple[Configuration, ...] = ()
    """Configurations that are faster than ``best``, but have wrong losses; the fastest first."""
    checks: tuple[CapCheck, ...] = ()
    """All cap checks of the environment."""
    contenders: tuple[Configuration, ...] = ()
    """The fastest by the search's measurements, then those whose speeds are too close to it."""
    comparisons: tuple[PairedComparison, ...] = ()
    """The tie-breaks of the first contender against each of the others."""

    def check_of(self, configuration: Configuration) -> CapCheck | None:
        """The cap check of a configuration in this budget.

        None if there is no such check. Its fit is then inferred from its peak.
        """
        return decisive_check(self.checks, configuration.trial_ids, self.budget_bytes)


def fastest(
    configurations: Iterable[Configuration], budget_bytes: float = math.inf
) -> Configuration | None:
    """The fastest configuration that fits; None if nothing fits.

    Of equally fast ones, the one with less memory. Recipes and losses are not looked at.
    """
    fitting = []
    for configuration in configurations:
        if configuration.memory_bytes <= budget_bytes:
            fitting.append(configuration)
    return max(fitting, key=_speed_then_memory, default=None)


def _speed_then_memory(configuration: Configuration) -> tuple[float, int]:
    return configuration.samples_per_second, -configuration.memory_bytes


def best_in_budgets(
    configurations: Sequence[Configuration],
    budgets: Sequence[int] = (),
    recipe: TrainingRecipe = PLAIN,
    checks: Sequence[CapCheck] = (),
    comparisons: Sequence[PairedComparison] = (),
) -> tuple[BudgetPick, ...]:
    """A pick for each budget in bytes, smallest first, within a training recipe.

    ``Ranking`` decides. A configuration that failed a cap check of the budget is never its pick,
    whatever its peak was on the whole GPU. One whose losses contradict their reference is never
    picked at all. If the search measured about equal speeds, a tie-break decides which is faster.
    """
    # One ranking answers for every budget.
    ranking = Ranking.of(configurations, Constraints(), recipe, checks, comparisons)
    across = Ranking.of(configurations, Constraints(all_recipes=True), recipe, checks, comparisons)
    chosen = sorted(set(budgets)) or default_budgets(configurations)
    picks = []
    for budget in chosen:
        picks.append(_pick(ranking, across, budget, tuple(checks)))
    return tuple(picks)


def _pick(
    ranking: Ranking, across: Ranking, budget: int, checks: tuple[CapCheck, ...]
) -> BudgetPick:
    """The decision for one budget; ``across`` ranks all recipes together."""
    decision = ranking.pick(budget)
    best = None
    if decision is not None:
        best = decision.configuration
    fitting = [candidate.configuration for candidate in ranking.ranked(budget)]
    close = contenders(fitting)
    return BudgetPick(
        budget_bytes=budget,
        best=best,
        other=_faster_with_another_recipe(across, ranking.recipe, close, budget),
        failed=_failed(across, budget),
        left_out=_left_out(ranking, best, budget),
        checks=checks,
        contenders=close,
        comparisons=compared_with_first(close, ranking.comparisons),
    )


def _faster_with_another_recipe(
    across: Ranking, recipe: TrainingRecipe, close: Sequence[Configuration], budget: int
) -> Configuration | None:
    """The fastest of all recipes, if it has another recipe and is faster than the contenders.

    Speeds are compared as the search measured them, because a tie-break has one recipe only.
    """
    best = fastest(candidate.configuration for candidate in across.ranked(budget))
    if best is None or best.training_recipe == recipe:
        return None
    if close and best.samples_per_second <= close[0].samples_per_second:
        return None
    return best


def _failed(across: Ranking, budget: int) -> tuple[Configuration, ...]:
    """The configurations whose peaks fit, but which failed a cap check; the fastest first."""
    failed = []
    for ranked in across.ordered:
        configuration = ranked.candidate.configuration
        if configuration.memory_bytes <= budget < ranked.least_bytes:
            failed.append(configuration)
    return tuple(sorted(failed, key=_speed_then_memory, reverse=True))


def _left_out(
    ranking: Ranking, best: Configuration | None, budget: int
) -> tuple[Configuration, ...]:
    """The configurations that are faster than the best, but have wrong losses."""
    speed = 0.0
    if best is not None:
        speed = best.samples_per_second
    faster = []
    for candidate in ranking.trains_wrongly(budget):
        if candidate.configuration.samples_per_second > speed:
            faster.append(candidate.configuration)
    return tuple(faster)


def contenders(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The fastest, then the next ones that may be as fast, ``MAX_CONTENDERS`` in all.

    A configuration may be as fast if the difference is within the uncertainty of both speeds.
    """
    best = fastest(configurations)
    if best is None:
        return ()
    near = []
    for configuration in configurations:
        if configuration is not best and _is_close(configuration, best):
            near.append(configuration)
    near.sort(key=_speed_then_memory, reverse=True)
    return (best, *near[: MAX_CONTENDERS - 1])


def _is_close(configuration: Configuration, best: Configuration) -> bool:
    """Whether another pair of trials could show the opposite order of the two speeds."""
    # The margin is the 95 % interval of the difference, but never below ``CLOSE``.
    error = difference_error(configuration.speed_error, best.speed_error).half_width95
    margin = CLOSE
    if math.isfinite(error):
        margin = max(CLOSE, error)
    return configuration.samples_per_second >= best.samples_per_second * (1 - margin)


def default_budgets(configurations: Sequence[Configuration]) -> list[int]:
    """The sizes of GPUs that hold some configuration, up to the first that holds all.

    If all configurations fit on the smallest GPU, powers of two take the place of GPU sizes.
    """
    if not configurations:
        return []
    memory = [configuration.memory_bytes for configuration in configurations]
    least = min(memory)
    most = max(memory)
    sizes = CARD_SIZES
    if most <= CARD_SIZES[0]:
        sizes = _POWERS_OF_TWO
    # Beyond the first budget in which everything fits, all picks are the same.
    enough = min((size for size in sizes if size >= most), default=sizes[-1])
    return [size for size in sizes if least <= size <= enough]
