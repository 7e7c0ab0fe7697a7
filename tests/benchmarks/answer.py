"""Replays `search: answer` on recorded grids: its cost, and how far its picks are from the best.

    python -m tests.benchmarks.answer [RUN_OR_TABLE ...] [--seeds 100] [--budgets 16,24,40,80]

Each grid is a complete run: its folder, or a table of trials. The priors of techniques come from
the runs of all other models (leave one model out). The searches to compare with get the same GPU
time as the answer search. The regret of a budget is 1 - speed of the pick / best speed of any
configuration that fits, both in the grid. It is 1 if the search measured nothing that fits.
"""

from __future__ import annotations

import os

from tests.support.arithmetic import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

from jobs.record import Outcome, TrialRecord
from jobs.spec import Choice, TrainingRecipe, TrialSpec
from jobs.techniques import AXES
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.search.answer.budget_answer import BudgetAnswer
from orchestrator.search.answer.search import AnswerSearch
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.base import Search
from orchestrator.search.frontier.search import FrontierSearch
from orchestrator.storage.run_reader import read_run_folder
from orchestrator.units import GIB
from tests.benchmarks.grids import DATA, PREDICTED, Table, predicted, recorded, with_noise
from tests.benchmarks.optuna_search import OptunaSearch
from tests.benchmarks.replay import MakeSearch, random_order, replay
from tests.benchmarks.simulated_grids import simulated
from tests.benchmarks.technique_priors import RESULTS, priors_from, runs_in, shape_of

NOISES = (0.0, 0.01, 0.03)
BUDGETS = (16, 24, 40, 80)
"""GiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A recorded grid, and what a search may know before its first trial."""

    name: str
    table: Table
    predicted_bytes: Mapping[str, float]
    priors: TechniquePriors
    baseline: Mapping[str, Choice]
    budgets: tuple[int, ...]
    """Bytes."""

    @property
    def recipe(self) -> TrainingRecipe:
        """The training recipe of the question."""
        listed = [
            (record.spec.choices, record.spec.training_recipe) for record in self.table.values()
        ]
        return ranked_recipe(listed, self.baseline)


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The cost and the result of one replay."""

    trials: int
    share: float
    """Slot seconds of the replay / slot seconds of the whole grid."""
    regrets: tuple[float, ...]
    """The regret of each budget in which any configuration of the grid fits."""
    claims: tuple[tuple[float, float], ...] = ()
    """For each budget: the bound of the possible gain that the search reports, and the true gain.
    """


def score(search: str, make: MakeSearch, grid: Grid, noisy: Table, seconds: float | None) -> Score:
    """Replay a search on a grid with noise, and compute its regrets from the grid without noise."""
    built: list[Search] = []

    def remembered(trials: Iterable[TrialSpec]) -> Search:
        built.append(make(trials))
        return built[0]

    run = replay(remembered, noisy, truth=grid.table, seconds=seconds)
    picks = {budget: _fastest_asked(grid, noisy, run.asked, budget) for budget in grid.budgets}
    answers: tuple[BudgetAnswer, ...] = ()
    if isinstance(built[0], AnswerSearch):
        answers = built[0].answers()
        picks = {int(own.budget_bytes): own.pick and own.pick.trial_id for own in answers}
    regrets = {budget: regret_of(grid, pick, budget) for budget, pick in picks.items()}
    claims = []
    for answer in answers:
        if answer.gain_at_most is not None and answer.pick is not None:
            claims.append((answer.gain_at_most, _unmeasured_gain(grid, answer, run.asked)))
    known = tuple(own for own in regrets.values() if own is not None)
    return Score(trials=run.trials, share=run.cost, regrets=known, claims=tuple(claims))


def _unmeasured_gain(grid: Grid, answer: BudgetAnswer, asked: Iterable[str]) -> float:
    """How much faster than the pick the fastest unmeasured one is, which an answer bounds."""
    assert answer.pick is not None
    speeds = [0.0]
    for trial_id in grid.table.keys() - set(asked):
        record = grid.table[trial_id]
        if _is_candidate(record, grid.recipe, int(answer.budget_bytes)):
            speeds.append(record.measurements["samples_per_second"])
    pick = grid.table[answer.pick.trial_id].measurements["samples_per_second"]
    return max(0.0, max(speeds) / pick - 1)


def _fastest_asked(grid: Grid, noisy: Table, asked: Iterable[str], budget: int) -> str | None:
    """The fastest measured within a budget: the pick of a search that names none itself."""
    measured = []
    for trial_id in asked:
        if _is_candidate(grid.table[trial_id], grid.recipe, budget):
            measured.append((noisy[trial_id].measurements["samples_per_second"], trial_id))
    if not measured:
        return None
    return max(measured)[1]


def regret_of(grid: Grid, pick: str | None, budget: int) -> float | None:
    """The share of the best speed that a pick lacks; None if nothing fits. By the grid's own
    figures, whatever the pick was measured to do."""
    fitting = {}
    for trial_id, record in grid.table.items():
        if _is_candidate(record, grid.recipe, budget):
            fitting[trial_id] = record.measurements["samples_per_second"]
    if not fitting:
        return None
    return 1 - fitting.get(pick or "", 0.0) / max(fitting.values())


def _is_candidate(record: TrialRecord, recipe: TrainingRecipe, budget: int) -> bool:
    if record.outcome is not Outcome.OK or record.spec.training_recipe != recipe:
        return False
    return bool(record.measurements["device_peak_bytes"] <= budget)


def answer_of(grid: Grid) -> MakeSearch:
    """The answer search, with the predictions and priors of a grid."""
    return partial(
        AnswerSearch,
        budgets=grid.budgets,
        baseline=grid.baseline,
        predicted_bytes=grid.predicted_bytes,
        priors=grid.priors,
    )


def scores_of_searches(grid: Grid, noise: float, seed: int) -> dict[str, Score]:
    """The scores of the answer search, and of other searches with the same GPU time."""
    noisy = with_noise(grid.table, noise, seed)
    answer = score("answer", answer_of(grid), grid, noisy, None)
    whole = sum(record.slot_seconds for record in grid.table.values())
    seconds = answer.share * whole
    makes: Mapping[str, MakeSearch] = {
        "optuna, TPE": partial(OptunaSearch, sampler="tpe", seed=seed),
        "optuna, NSGA-II": partial(OptunaSearch, sampler="nsga2", seed=seed),
        "random": random_order(seed),
    }
    scores = {"answer": answer}
    for name, make in makes.items():
        of_recipe = partial(_within_recipe, make, grid.recipe)
        scores[name] = score(name, of_recipe, grid, noisy, seconds)
    return scores


def _within_recipe(make: MakeSearch, recipe: TrainingRecipe, trials: Iterable[TrialSpec]) -> Search:
    """A search over the trials of one recipe only, because no question is about other recipes."""
    return make([trial for trial in trials if trial.training_recipe == recipe])


def report(grid: Grid, seeds: int, workers: int | None) -> Iterator[str]:
    """Lines: the searches on one grid, without and with noise."""
    of_recipe = [
        record for record in grid.table.values() if record.spec.training_recipe == grid.recipe
    ]
    yield (
        f"{grid.name}: {len(grid.table)} configurations, {len(of_recipe)} of the recipe in question"
    )
    yield (
        f"  {'':26} {'trials':>6} {'share':>6} {'worst':>6}  {'regret':>6} {'worst':>6}"
        f"  {'seeds within 2 %':>16}  {'claims kept':>11}"
    )
    frontier = partial(FrontierSearch, predicted_bytes=grid.predicted_bytes)
    whole = score("frontier", frontier, grid, grid.table, None)
    yield _line("frontier, to its end", [whole])
    with ProcessPoolExecutor(workers) as pool:
        for noise in NOISES:
            count = seeds if noise else min(seeds, 10)
            runs = list(pool.map(scores_of_searches, repeat(grid), repeat(noise), range(count)))
            for name in runs[0]:
                yield _line(f"{name}, {noise:.0%} noise", [run[name] for run in runs])


def _line(name: str, scores: Sequence[Score]) -> str:
    shares = [score.share for score in scores]
    worst = [max(score.regrets) for score in scores]
    means = [statistics.fmean(score.regrets) for score in scores]
    within = statistics.fmean(regret <= 0.02 for regret in worst)
    claims = [claim for score in scores for claim in score.claims]
    kept = ""
    if claims:
        # A claim holds if the true gain is within the reported bound. It should hold in 95 % of
        # cases.
        kept = f"{statistics.fmean(true <= said + 1e-9 for said, true in claims):11.1%}"
    return (
        f"  {name:26} {statistics.fmean(score.trials for score in scores):6.1f}"
        f" {statistics.fmean(shares):6.1%} {max(shares):6.1%}"
        f"  {statistics.fmean(means):6.2%} {max(worst):6.2%}  {within:16.0%}  {kept:>11}"
    )


def grid_of(path: Path, budgets: tuple[int, ...]) -> Grid:
    """A recorded grid: a run's folder, or a table of trials."""
    table_path = path
    shape = ""
    if path.is_dir():
        table_path = path / "trials.parquet"
        shape = shape_of(path)
    table = recorded(table_path)
    if path.parent == DATA:
        shape = shape_of(RESULTS / "2026-11-21-bert_large-h200")
    predictions: Mapping[str, float] = {}
    if shape == shape_of(RESULTS / "2026-11-21-bert_large-h200"):
        predictions = predicted(table, PREDICTED)
    elif (path / "predicted.parquet").exists():
        predictions = predicted(table, path / "predicted.parquet")
    return Grid(
        name=path.name,
        table=table,
        predicted_bytes=predictions,
        priors=priors_from(runs_in(RESULTS), without=shape),
        baseline=baseline_of(path, table),
        budgets=budgets,
    )


def baseline_of(path: Path, table: Table) -> Mapping[str, Choice]:
    """The baseline: the defaults of the axes, if the grid has them."""
    baseline: dict[str, Choice] = {}
    if path.is_dir():
        baseline = dict(read_run_folder(path).trials.run.baseline)
    for name, axis in AXES.items():
        values = {record.spec.choices.get(name) for record in table.values()}
        if axis.default in values:
            baseline[name] = axis.default
    return baseline


def simulated_grid(budgets: tuple[int, ...]) -> Grid:
    """A grid simulated by the cost law, to test a search when the law holds exactly."""
    table = simulated()
    return Grid(
        name="SIMULATED",
        table=table,
        predicted_bytes={},
        priors=TechniquePriors(),
        baseline=baseline_of(DATA / "simulated", table),
        budgets=budgets,
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.answer",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    default = "run folders or tables; default: those in tests/data, and a simulated one"
    add("grids", type=Path, nargs="*", help=default)
    add("--seeds", type=int, default=100, help="noisy tables per figure")
    add("--workers", type=int, help="processes; default: one per core")
    add("--budgets", default=",".join(map(str, BUDGETS)), help="GiB")
    options = parser.parse_args()
    budgets = tuple(int(float(size) * GIB) for size in options.budgets.split(","))
    paths = options.grids or sorted(DATA.glob("bert_large_h200*.parquet"))
    grids = [grid_of(path, budgets) for path in paths]
    if not options.grids:
        grids.append(simulated_grid(budgets))
    for grid in grids:
        for line in report(grid, options.seeds, options.workers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
