"""The fastest configuration within each memory budget."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.follow_up_results import PairedComparison, compared_with_first
from orchestrator.analysis.recommendation import Constraints, Rankings
from orchestrator.analysis.repeatability import CLOSE, difference_error
from orchestrator.units import GIB

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
    """Their peaks fit, but they failed a cap check; the fastest first."""
    left_out: tuple[Configuration, ...] = ()
    """They are faster than ``best``, but have wrong losses; the fastest first."""
    contenders: tuple[Configuration, ...] = ()
    """The fastest by the search's measurements, then those whose speeds are too close to it."""
    comparisons: tuple[PairedComparison, ...] = ()
    """The tie-breaks of the first contender against each of the others."""

    @property
    def configurations(self) -> list[Configuration]:
        """The pick, and a faster configuration of another training recipe if there is one."""
        return [own for own in (self.best, self.other) if own is not None]


def fastest(
    configurations: Iterable[Configuration], budget_bytes: float = math.inf
) -> Configuration | None:
    """The fastest that fits; of equally fast ones, the one with less memory."""
    fitting = [each for each in configurations if each.memory_bytes <= budget_bytes]
    return max(fitting, key=_speed_then_memory, default=None)


def _speed_then_memory(configuration: Configuration) -> tuple[float, int]:
    return configuration.samples_per_second, -configuration.memory_bytes


def best_in_budgets(rankings: Rankings, budgets: Sequence[int] = ()) -> tuple[BudgetPick, ...]:
    """A pick for each budget in bytes, smallest first, within the ranked training recipe."""
    chosen = sorted(set(budgets)) or default_budgets(rankings.configurations)
    return tuple(_pick(rankings, budget) for budget in chosen)


def _pick(rankings: Rankings, budget: int) -> BudgetPick:
    ranking = rankings.under(Constraints())
    across = rankings.under(Constraints(all_recipes=True))
    decision = ranking.pick(budget)
    best = None if decision is None else decision.configuration
    close = contenders([candidate.configuration for candidate in ranking.ranked(budget)])
    enough = 0.0 if best is None else best.samples_per_second
    wrong = [candidate.configuration for candidate in ranking.trains_wrongly(budget)]
    failed = [
        ranked.candidate.configuration
        for ranked in across.ordered
        if ranked.candidate.memory_bytes <= budget < ranked.least_bytes
    ]
    # Speeds are compared as the search measured them, because a tie-break has one recipe only.
    other = fastest(candidate.configuration for candidate in across.ranked(budget))
    if other is not None and (
        other.training_recipe == rankings.recipe
        or (close and other.samples_per_second <= close[0].samples_per_second)
    ):
        other = None
    return BudgetPick(
        budget_bytes=budget,
        best=best,
        other=other,
        failed=tuple(sorted(failed, key=_speed_then_memory, reverse=True)),
        left_out=tuple(own for own in wrong if own.samples_per_second > enough),
        contenders=close,
        comparisons=compared_with_first(close, ranking.comparisons),
    )


def contenders(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """The fastest, then the next ones that may be as fast by the errors of speeds, three in all."""
    by_speed = sorted(configurations, key=_speed_then_memory, reverse=True)
    return tuple(own for own in by_speed if _may_be_as_fast(own, by_speed[0]))[:3]


def _may_be_as_fast(configuration: Configuration, best: Configuration) -> bool:
    # The margin is the 95 % interval of the difference, but never below ``CLOSE``.
    error = difference_error(configuration.speed_error, best.speed_error).half_width95
    margin = max(CLOSE, error) if math.isfinite(error) else CLOSE
    return configuration.samples_per_second >= best.samples_per_second * (1 - margin)


def default_budgets(configurations: Sequence[Configuration]) -> list[int]:
    """The sizes of GPUs that hold some configuration, up to the first that holds all."""
    if not configurations:
        return []
    memory = [configuration.memory_bytes for configuration in configurations]
    least, most = min(memory), max(memory)
    sizes = CARD_SIZES if most > CARD_SIZES[0] else _POWERS_OF_TWO
    # Beyond the first budget in which everything fits, all picks are the same.
    enough = min((size for size in sizes if size >= most), default=sizes[-1])
    return [size for size in sizes if least <= size <= enough]
