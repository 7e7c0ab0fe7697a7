"""Replays `search: best` on complete grids: its cost, and how far its picks are from the best.

    python -m tests.benchmarks.best [RUN_OR_TABLE ...] [--seeds 100] [--budgets 16,24,40,80]

A recorded grid is a complete run: its folder, or a table of trials. The priors of techniques come
from the runs of all other models (leave one model out). Each seed of a simulated grid is another
draw of the model.

The regret of a budget is 1 - speed of the pick / best speed of any configuration that fits, both in
the grid. It is 1 if the search measured nothing that fits. A claim is kept if no unmeasured
configuration is faster than the pick by more than the result said; 95 % should be kept.
"""

import os

from tests.support.arithmetic import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from orchestrator.units import GIB
from tests.benchmarks.best.grids import Grid, recorded_grid, simulated_grids
from tests.benchmarks.best.scores import WANTED_REGRET, Score, scores_of_searches
from tests.benchmarks.grids import DATA
from tests.benchmarks.technique_priors import RESULTS

NOISES = (0.0, 0.01, 0.03)
BUDGETS = (16, 24, 40, 80)
"""GiB."""

RECORDED_GRIDS = sorted((RESULTS / "2026-11-24-grids-h200").iterdir())
"""Four unlike models, each on one H200."""

DrawGrid = Callable[[int], Grid]
"""From a seed to a grid; a recorded grid is the same for every seed."""


def of_recording(path: Path, budgets: tuple[int, ...], seed: int) -> Grid:
    return recorded_grid(path, budgets)


def of_simulation(number: int, budgets: tuple[int, ...], seed: int) -> Grid:
    return simulated_grids(seed, budgets)[number]


def report(
    draw: DrawGrid,
    noises: Sequence[float],
    seeds: int,
    pool: ProcessPoolExecutor,
) -> Iterator[str]:
    """Lines: the search on one grid, without and with noise."""
    grid = draw(0)
    of_recipe = [
        record for record in grid.table.values() if record.spec.training_recipe == grid.recipe
    ]
    yield (
        f"{grid.name}: {len(grid.table)} configurations, {len(of_recipe)} of the recipe in query"
    )
    yield (
        f"  {'':30} {'trials':>6} {'share':>6} {'worst':>6}  {'regret':>6} {'worst':>6}"
        f" {'within 2 %':>10}  {'claims kept':>11} {'said':>6}"
        f" {'choice':>7}"
    )
    for noise in noises:
        replayed = partial(_scores, draw, noise)
        runs = list(pool.map(replayed, range(seeds if noise else min(seeds, 10))))
        for name in runs[0]:
            yield _line(f"{name}, {noise:.0%} noise", [run[name] for run in runs])


def _scores(draw: DrawGrid, noise: float, seed: int) -> dict[str, Score]:
    return scores_of_searches(draw(seed), noise, seed)


def _line(name: str, scores: Sequence[Score]) -> str:
    shares = [score.share for score in scores]
    worst = [max(score.regrets) for score in scores]
    means = [statistics.fmean(score.regrets) for score in scores]
    within = statistics.fmean(regret <= WANTED_REGRET for regret in worst)
    return (
        f"  {name:30} {statistics.fmean(score.trials for score in scores):6.1f}"
        f" {statistics.fmean(shares):6.1%} {max(shares):6.1%}"
        f"  {statistics.fmean(means):6.2%} {max(worst):6.2%} {within:10.0%}"
        f"  {_kept(scores)} {max(own.slowest_choice for own in scores):5.2f} s"
    )


def _kept(scores: Sequence[Score]) -> str:
    """How many claims hold, and the median of what they say."""
    claims = [claim for score in scores for claim in score.claims]
    if not claims:
        return " " * 18
    kept = statistics.fmean(claim.true <= claim.said + 1e-9 for claim in claims)
    said = statistics.median(claim.said for claim in claims)
    return f"{kept:11.1%} {said:6.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.best",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    default = "run folders or tables; default: all recorded grids, and the simulated ones"
    add("grids", type=Path, nargs="*", help=default)
    add("--seeds", type=int, default=100, help="noisy tables per figure")
    add("--noises", default=",".join(map(str, NOISES)), help="deviations of a measured speed")
    add("--workers", type=int, help="processes; default: one per core")
    add("--budgets", default=",".join(map(str, BUDGETS)), help="GiB")
    add("--only", default="", metavar="TEXT", help="only grids with this text in their names")
    options = parser.parse_args()
    budgets = tuple(int(float(size) * GIB) for size in options.budgets.split(","))
    noises = tuple(float(noise) for noise in options.noises.split(","))
    paths = options.grids or [*sorted(DATA.glob("bert_large_h200*.parquet")), *RECORDED_GRIDS]
    draws: list[DrawGrid] = [partial(of_recording, path, budgets) for path in paths]
    if not options.grids:
        for number in range(len(simulated_grids(0, budgets))):
            draws.append(partial(of_simulation, number, budgets))
    with ProcessPoolExecutor(options.workers) as pool:
        for draw in draws:
            if options.only not in draw(0).name:
                continue
            for line in report(draw, noises, options.seeds, pool):
                print(line, flush=True)


if __name__ == "__main__":
    main()
