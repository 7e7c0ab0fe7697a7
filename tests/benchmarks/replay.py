"""Searches replayed against a recorded or simulated grid: what they cost and how much of the front
they find.

    python -m tests.benchmarks.replay [GRID ...] [--seeds 100]

In a replay a search gets, for every trial it asks for, the record that the table has. The
figures are exact and repeatable, and need no GPU. Random order gets the slot seconds that
the frontier search took.
"""

import os

from tests.support.arithmetic import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

from jobs.spec import TrialSpec
from orchestrator.search.base import Grid, Search
from orchestrator.search.best.front import FrontierSearch
from tests.benchmarks.best.grids import Grid as RecordedGrid
from tests.benchmarks.best.grids import law_grid, recorded_grid
from tests.benchmarks.grids import DATA, Table, with_noise
from tests.benchmarks.replay_scores import front, height, recall

NOISES = (0.01, 0.10)

MakeSearch = Callable[[Iterable[TrialSpec]], Search]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What a search cost against a table, and what it found."""

    asked: tuple[str, ...]
    """The trials that were run, in order."""
    seconds: float
    """Their slot seconds."""
    table_seconds: float
    """Slot seconds of all trials of the table."""
    recall: float
    """Share of the table's front points that a measured trial is as good as."""
    true_recall: float
    """The same without the noise of the table."""
    height: float
    """How high the fronts found are, as a share of the table's (``replay_scores.height``)."""
    largest_audit_error: float
    """The largest error of an audited prediction, relative; 0 without audits."""
    slowest_choice: float = 0.0
    """Processor seconds of the longest choice of a next trial."""

    @property
    def trials(self) -> int:
        """Trials that were run."""
        return len(self.asked)

    @property
    def cost(self) -> float:
        """Share of the slot seconds of an exhaustive search."""
        return self.seconds / self.table_seconds


def replay(
    make: MakeSearch,
    table: Table,
    *,
    truth: Table | None = None,
    at_once: int = 1,
    seconds: float | None = None,
) -> Replay:
    """Run a search against a table, with ``at_once`` trials out, and cut it when it has taken
    ``seconds``."""
    search = make([record.spec for record in table.values()])
    asked, slowest_choice = _run(search, table, at_once, seconds)
    audits = search.audits if isinstance(search, FrontierSearch) else ()
    errors = [error for audit in audits for error in (audit.memory_error, audit.speed_error)]
    true_table = table if truth is None else truth
    return Replay(
        asked=tuple(asked),
        seconds=sum(table[trial_id].slot_seconds for trial_id in asked),
        table_seconds=sum(record.slot_seconds for record in table.values()),
        recall=recall(table, asked),
        true_recall=recall(true_table, asked),
        height=height(table, asked),
        largest_audit_error=max((abs(error) for error in errors if error is not None), default=0.0),
        slowest_choice=slowest_choice,
    )


def _run(
    search: Search, table: Table, at_once: int, seconds: float | None
) -> tuple[list[str], float]:
    """The trials asked for, in order, and the processor seconds of the slowest choice."""
    asked: list[str] = []
    out: list[str] = []
    spent = 0.0
    slowest = 0.0
    while True:
        while len(out) < at_once and (seconds is None or spent < seconds):
            began = time.process_time()
            trial = search.ask()
            slowest = max(slowest, time.process_time() - began)
            if trial is None:
                break
            out.append(trial.trial_id)
            asked.append(trial.trial_id)
            spent += table[trial.trial_id].slot_seconds
        if not out:
            return asked, slowest
        search.tell(table[out.pop(0)])


def random_order(seed: int) -> MakeSearch:
    """Every trial once, in random order."""

    def make(trials: Iterable[TrialSpec]) -> Search:
        shuffled = list(trials)
        random.Random(seed).shuffle(shuffled)
        return Grid(shuffled)

    return make


def frontier_search(grid: RecordedGrid, *, has_predictions: bool = True) -> MakeSearch:
    """The frontier search with the priors of a grid, and with its predicted memory or without."""
    predicted_bytes = grid.predicted_bytes if has_predictions else {}
    return partial(FrontierSearch, predicted_bytes=predicted_bytes, priors=grid.priors)


def with_random(grid: RecordedGrid, noise: float, seed: int) -> Mapping[str, Replay]:
    """The frontier search, and random order in the slot seconds that it took, on a table with such
    noise."""
    noisy = with_noise(grid.table, noise, seed)
    frontier = replay(frontier_search(grid), noisy, truth=grid.table)
    chance = replay(random_order(seed), noisy, truth=grid.table, seconds=frontier.seconds)
    return {"frontier": frontier, "random": chance}


HEADER = (
    f"  {'':28} {'trials':>6}  {'seconds':>7} {'worst':>7}  {'share':>6}"
    f"  {'recall':>6} {'worst':>6}  {'truth':>6} {'worst':>6}  {'height':>6}"
    f"  {'audit':>6}"
)


def report(grid: RecordedGrid, seeds: int, workers: int | None = None) -> Iterator[str]:
    """Lines: the searches on one grid, without and with noise."""
    table = grid.table
    yield f"{grid.name}: {len(front(table))} points on the fronts of {len(table)} configurations"
    yield HEADER
    yield _line("grid", [replay(Grid, table)])
    if grid.predicted_bytes:
        search = frontier_search(grid, has_predictions=False)
        yield _line("frontier, memory unpredicted", [replay(search, table)])
    with ProcessPoolExecutor(workers) as pool:
        for noise in (0.0, *NOISES):
            runs = list(pool.map(with_random, repeat(grid), repeat(noise), range(seeds)))
            suffix = f", {noise:.0%} noise" if noise else ""
            for name in runs[0]:
                yield _line(name + suffix, [run[name] for run in runs])


def _line(name: str, runs: Sequence[Replay]) -> str:
    seconds = [run.seconds for run in runs]
    recalls = [run.recall for run in runs]
    true_recalls = [run.true_recall for run in runs]
    return (
        f"  {name:28} {statistics.mean(run.trials for run in runs):6.1f}"
        f"  {statistics.mean(seconds):7.0f} {max(seconds):7.0f}"
        f"  {statistics.mean(run.cost for run in runs):6.1%}"
        f"  {statistics.mean(recalls):6.1%} {min(recalls):6.1%}"
        f"  {statistics.mean(true_recalls):6.1%} {min(true_recalls):6.1%}"
        f"  {statistics.mean(run.height for run in runs):6.1%}"
        f"  {max(run.largest_audit_error for run in runs):6.1%}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.replay",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    default = "runs or tables of recorded grids; default: those in tests/data, and a simulated one"
    add("grids", type=Path, nargs="*", help=default)
    add("--seeds", type=int, default=100, help="noisy tables and random orders per figure")
    add("--workers", type=int, help="processes; default: one per core")
    options = parser.parse_args()
    paths = options.grids or sorted(DATA.glob("bert_large_h200*.parquet"))
    grids = [recorded_grid(path, ()) for path in paths]
    if not options.grids:
        grids.append(law_grid(()))
    for grid in grids:
        for line in report(grid, options.seeds, options.workers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
