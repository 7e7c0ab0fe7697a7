"""The fastest configuration within each memory budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.cap_checks import CapCheck, decisive_check
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.repeatability import difference_error
from orchestrator.analysis.tie_breaks import PairedComparison, compared_with_first, fastest_of
from orchestrator.units import GIB

CLOSE = 0.01
"""Speeds nearer than this are close, whatever their intervals say."""
MAX_CONTENDERS = 3
CARD_SIZES = tuple(size * GIB for size in (4, 8, 12, 16, 24, 32, 40, 48, 80, 96, 141, 180))
"""Memory in bytes of the GPUs that people have: the budgets of a run that names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetPick:
    """The fastest configuration within a memory budget, if any fits."""

    budget_bytes: int
    best: Configuration | None
    """Of the ranked training recipe."""
    other: Configuration | None = None
    """Of any other recipe, where that is faster still."""
    failed: tuple[Configuration, ...] = ()
    """Those whose peaks would fit, but which failed a cap check; the fastest first."""
    checks: tuple[CapCheck, ...] = ()
    """All cap checks of the environment."""
    contenders: tuple[Configuration, ...] = ()
    """The fastest as the search measured it, then those whose speeds it could not tell from that
    one's.
    """
    comparisons: tuple[PairedComparison, ...] = ()
    """What tie-breaks said of the contenders, each against the first."""

    def check_of(self, configuration: Configuration) -> CapCheck | None:
        """What a cap check said of a configuration in this budget.

        None: its fit is inferred from its peak.
        """
        return decisive_check(self.checks, configuration.trial_ids, self.budget_bytes)


def fastest(
    configurations: Sequence[Configuration], budget_bytes: float = math.inf
) -> Configuration | None:
    """The fastest that fits, of equals the one with less memory; None when nothing fits."""
    fitting = [own for own in configurations if own.memory_bytes <= budget_bytes]
    return max(fitting, key=lambda own: (own.samples_per_second, -own.memory_bytes), default=None)


def best_in_budgets(
    configurations: Sequence[Configuration],
    budgets: Sequence[int] = (),
    recipe: TrainingRecipe = PLAIN,
    checks: Sequence[CapCheck] = (),
    comparisons: Sequence[PairedComparison] = (),
) -> tuple[BudgetPick, ...]:
    """A pick for each budget in bytes, smallest first, within a training recipe.

    A configuration that failed a cap check of the budget is no pick, whatever its peak was on the
    whole GPU. Of configurations that the search could not tell apart, the pick is the one that a
    tie-break found faster.
    """
    chosen = sorted(set(budgets)) or default_budgets(configurations)
    return tuple(_pick(configurations, budget, recipe, checks, comparisons) for budget in chosen)


def _pick(
    configurations: Sequence[Configuration],
    budget: int,
    recipe: TrainingRecipe,
    checks: Sequence[CapCheck],
    comparisons: Sequence[PairedComparison],
) -> BudgetPick:
    fitting = [own for own in configurations if own.memory_bytes <= budget]
    failed: list[Configuration] = []
    left: list[Configuration] = []
    for own in fitting:
        check = decisive_check(checks, own.trial_ids, budget)
        has_failed = check is not None and check.fails
        (failed if has_failed else left).append(own)
    close = contenders([own for own in left if own.training_recipe == recipe])
    of_contenders = compared_with_first(close, comparisons)
    return BudgetPick(
        budget_bytes=budget,
        best=fastest_of(close, of_contenders),
        other=_faster_with_another_recipe(left, close, recipe),
        failed=tuple(sorted(failed, key=lambda own: -own.samples_per_second)),
        checks=tuple(checks),
        contenders=close,
        comparisons=of_contenders,
    )


def _faster_with_another_recipe(
    configurations: Sequence[Configuration],
    close: Sequence[Configuration],
    recipe: TrainingRecipe,
) -> Configuration | None:
    """The fastest of all, if its recipe is another one and it is faster than the contenders.

    The contenders' speeds are the search's here: another recipe takes no part in their tie-break.
    """
    best = fastest(configurations)
    if best is None or best.training_recipe == recipe:
        return None
    if close and best.samples_per_second <= close[0].samples_per_second:
        return None
    return best


def contenders(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The fastest, then the next ones whose speed cannot be told from its, ``MAX_CONTENDERS`` in
    all.
    """
    best = fastest(configurations)
    if best is None:
        return ()
    near = [own for own in configurations if own is not best and _is_close(own, best)]
    near.sort(key=lambda own: (-own.samples_per_second, own.memory_bytes))
    return (best, *near[: MAX_CONTENDERS - 1])


def _is_close(configuration: Configuration, best: Configuration) -> bool:
    """Whether another trial of each may turn out the other way round."""
    error = difference_error(configuration.speed_error, best.speed_error).half_width95
    margin = max(CLOSE, error) if math.isfinite(error) else CLOSE
    return configuration.samples_per_second >= best.samples_per_second * (1 - margin)


def default_budgets(configurations: Sequence[Configuration]) -> list[int]:
    """The GPU sizes that tell these configurations apart; powers of two where all are smaller than
    any GPU.
    """
    if not configurations:
        return []
    least = min(own.memory_bytes for own in configurations)
    most = max(own.memory_bytes for own in configurations)
    sizes = CARD_SIZES if most > CARD_SIZES[0] else tuple(2**power for power in range(20, 33))
    enough = next((size for size in sizes if size >= most), sizes[-1])
    return [size for size in sizes if least <= size <= enough]
