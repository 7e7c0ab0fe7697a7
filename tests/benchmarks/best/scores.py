"""Replays one search on one grid with noise, and judges its picks by the grid without noise."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrainingRecipe, TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.best.search import BestSearch
from orchestrator.storage.search_summary import BudgetResult
from tests.benchmarks.best.grids import Grid
from tests.benchmarks.grids import Table, with_noise
from tests.benchmarks.replay import replay

MakeBest = Callable[[Iterable[TrialSpec]], BestSearch]

WANTED_REGRET = 0.02
WANTED_SHARE = 0.12
"""The aim: picks within this share of the best speed, in this share of the grid's GPU time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What a result said could still be gained, and what could be."""

    said: float
    """The bound of the possible gain, as a share of the pick's speed."""
    true: float
    """The gain of the fastest unmeasured configuration over the pick, without noise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The cost and the result of one replay."""

    trials: int
    share: float
    """Slot seconds of the replay / slot seconds of the whole grid."""
    regrets: tuple[float, ...]
    """The regret of each budget in which any configuration of the grid fits."""
    claims: tuple[Claim, ...] = ()
    slowest_choice: float = 0.0
    """Processor seconds of the longest choice of a next trial."""


def score(make: MakeBest, grid: Grid, noisy: Table) -> Score:
    """Replay a search on a grid with noise, and compute its regrets from the grid without noise."""
    built: list[BestSearch] = []

    def remembered(trials: Iterable[TrialSpec]) -> Search:
        built.append(make(trials))
        return built[0]

    run = replay(remembered, noisy, truth=grid.table)
    results = built[0].results()
    picks = {own.budget_bytes or 0: own.pick and own.pick.trial_id for own in results}
    regrets = [regret_of(grid, pick, budget) for budget, pick in picks.items()]
    return Score(
        trials=run.trials,
        share=run.cost,
        regrets=tuple(regret for regret in regrets if regret is not None),
        claims=tuple(_claims(grid, results, run.asked)),
        slowest_choice=run.slowest_choice,
    )


def _claims(grid: Grid, results: Iterable[BudgetResult], asked: Iterable[str]) -> Iterator[Claim]:
    for result in results:
        if result.gain_at_most is not None and result.pick is not None:
            yield Claim(said=result.gain_at_most, true=_unmeasured_gain(grid, result, asked))


def _unmeasured_gain(grid: Grid, result: BudgetResult, asked: Iterable[str]) -> float:
    """How much faster than the pick the fastest unmeasured one is, which a result bounds."""
    assert result.pick is not None
    speeds = [0.0]
    for trial_id in grid.table.keys() - set(asked):
        record = grid.table[trial_id]
        if _is_candidate(record, grid.recipe, result.budget_bytes or 0):
            speeds.append(record.measurements["samples_per_second"])
    pick = grid.table[result.pick.trial_id].measurements["samples_per_second"]
    return max(0.0, max(speeds) / pick - 1)


def regret_of(grid: Grid, pick: str | None, budget: int) -> float | None:
    """The share of the best speed that a pick lacks; None if nothing fits. By the grid's own
    figures, whatever the pick was measured to do."""
    speeds = _fitting(grid, budget)
    if not speeds:
        return None
    return 1 - speeds.get(pick or "", 0.0) / max(speeds.values())


@cache
def _fitting(grid: Grid, budget: int) -> Mapping[str, float]:
    """Trial id -> samples per second, of all that fit."""
    recipe = grid.recipe
    speeds = {}
    for trial_id, record in grid.table.items():
        if _is_candidate(record, recipe, budget):
            speeds[trial_id] = record.measurements["samples_per_second"]
    return speeds


def _is_candidate(record: TrialRecord, recipe: TrainingRecipe, budget: int) -> bool:
    if record.outcome is not Outcome.OK or record.spec.training_recipe != recipe:
        return False
    return bool(record.measurements["device_peak_bytes"] <= budget)


def best_of(grid: Grid, *, slot_seconds: float = math.inf) -> MakeBest:
    """The search, with the predictions and priors of a grid."""
    return partial(
        BestSearch,
        budgets=grid.budgets,
        baseline=grid.baseline,
        predicted_bytes=grid.predicted_bytes,
        predicted_seconds=grid.predicted_seconds,
        priors=grid.priors,
        slot_seconds=slot_seconds,
    )


def scores_of_searches(grid: Grid, noise: float, seed: int) -> dict[str, Score]:
    """The scores of the search, to its own end and cut short."""
    noisy = with_noise(grid.table, noise, seed)
    limited = best_of(grid, slot_seconds=WANTED_SHARE * grid.seconds)
    return {
        "best": score(best_of(grid), grid, noisy),
        "best, at most 12 %": score(limited, grid, noisy),
    }
