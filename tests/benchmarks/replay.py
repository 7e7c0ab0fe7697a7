"""Searches replayed against a measured or simulated grid: what they cost and what of the frontier they recall.

    python -m tests.benchmarks.replay [TRIALS.parquet ...] [--seeds 100]

A replay is a search that is told, for every trial it asks for, what the table says of it. Its figures are exact and
repeatable; no GPU is needed. Random order and Optuna get the slot seconds that the frontier search took.
"""

from __future__ import annotations

import os

from tests.support.arithmetic import ENVIRONMENT

os.environ.update(ENVIRONMENT)

import argparse
import random
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path

import numpy as np

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search
from orchestrator.search.frontier.configurations import kind_of_training
from orchestrator.search.frontier.search import Frontier
from orchestrator.search.grid import Grid
from orchestrator.search.optuna import Optuna
from tests.benchmarks.grids import (
    DATA,
    Table,
    measured_anew,
    predicted,
    recorded,
    simulated,
    with_noise,
)

TOLERANCE = 0.02
NOISES = (0.01, 0.03, 0.10)
SHARES = (0.25, 0.5, 0.75)
BUDGETS = 200
BOUNDS = re.compile(r"at least ([\d.]+) GiB(?: and reach at most ([\d.]+) samples/s)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """What a search cost against a table, and what it found."""

    asked: tuple[str, ...]
    seconds: float
    """Slot seconds of the trials that were run."""
    of_seconds: float
    """Slot seconds of all trials."""
    recall: float
    """Share of the exhaustive frontiers' points that a measured point is within the tolerance of."""
    recall_of_truth: float
    """The same of the frontiers without the noise, and by the trials' figures without it."""
    height: float
    """How high the frontiers found are in those of the table: the mean share of the speed, over budgets."""
    audit_error: float
    """The largest error of an audited prediction of memory or speed, relative; 0 without audits."""
    contradicted: float
    """Share of the bounds in the skipped rows' reasons that the truth is beyond by more than the tolerance."""

    @property
    def trials(self) -> int:
        """Trials that were run."""
        return len(self.asked)

    @property
    def cost(self) -> float:
        """Share of the exhaustive slot seconds."""
        return self.seconds / self.of_seconds


MakeSearch = Callable[[Iterable[TrialSpec]], Search]


def replay(
    make: MakeSearch,
    table: Table,
    *,
    truth: Table | None = None,
    at_once: int = 1,
    seconds: float | None = None,
) -> Replay:
    """Run a search against a table, cut when it has taken ``seconds``; several trials may be out at once."""
    search = make([record.spec for record in table.values()])
    asked: list[str] = []
    out: list[str] = []
    spent = 0.0
    while True:
        while (
            len(out) < at_once
            and (seconds is None or spent < seconds)
            and (spec := search.ask()) is not None
        ):
            out.append(spec.trial_id)
            asked.append(out[-1])
            spent += table[out[-1]].slot_seconds
        if not out:
            break
        search.tell(table[out.pop(0)])
    audits = search.audit if isinstance(search, Frontier) else ()
    errors = [
        error
        for audit in audits
        for error in (audit.memory_error, audit.speed_error)
        if error is not None
    ]
    return Replay(
        asked=tuple(asked),
        seconds=spent,
        of_seconds=sum(record.slot_seconds for record in table.values()),
        recall=recall(table, asked),
        recall_of_truth=recall(truth or table, asked),
        height=height(table, asked),
        audit_error=max(map(abs, errors), default=0.0),
        contradicted=contradicted(search.skipped(), truth or table),
    )


def recall(
    table: Table,
    asked: Iterable[str],
    tolerance: float = TOLERANCE,
    among: Callable[[TrialRecord], bool] = lambda point: True,
) -> float:
    """Share of the frontier points that an asked point of the same kind of training is as good as, within this."""
    points = [point for point in front(table) if among(point)]
    run = [record for trial_id in asked if (record := table[trial_id]).outcome is Outcome.OK]
    return share_found(points, run, tolerance)


def share_found(
    points: Sequence[TrialRecord], run: Sequence[TrialRecord], tolerance: float = TOLERANCE
) -> float:
    """Share of the points that one of what was run is as good as: takes about the memory, and reaches the speed."""
    found = sum(any(_as_good(one, point, tolerance) for one in run) for point in points)
    return found / len(points) if points else 1.0


def height(table: Table, asked: Iterable[str], tolerance: float = TOLERANCE) -> float:
    """The mean, over memory budgets alike in ratio and kinds of training, of the best speed asked for to the best."""
    asked, shares = set(asked), []
    ok = [record for record in table.values() if record.outcome is Outcome.OK]
    for training in {kind_of_training(record.spec.equivalence) for record in ok}:
        alike = [record for record in ok if kind_of_training(record.spec.equivalence) == training]
        memory, speed = np.array([_figures(record) for record in alike]).T
        is_known = np.array([record.trial_id in asked for record in alike])
        budgets = np.geomspace(memory.min(), memory.max(), BUDGETS).clip(memory.min())
        best = np.where(memory[:, None] <= budgets, speed[:, None], 0.0).max(axis=0)
        fits = is_known[:, None] & (memory[:, None] <= (1 + tolerance) * budgets)
        shares.append(
            np.minimum(1.0, np.where(fits, speed[:, None], 0.0).max(axis=0) / best).mean()
        )
    return float(np.mean(shares))


def contradicted(
    skipped: Iterable[TrialRecord], truth: Table, tolerance: float = TOLERANCE
) -> float:
    """Share of the bounds in rows' reasons that are wrong: less memory, or more speed, than was said to be possible."""
    wrong = []
    for record in skipped:
        known, bounds = truth[record.trial_id], BOUNDS.search(record.reason)
        if bounds is None or known.outcome is not Outcome.OK:
            continue
        memory, speed = _figures(known)
        most = float(bounds[2]) if bounds[2] else speed
        wrong.append(
            memory < (1 - tolerance) * float(bounds[1]) * 2**30 or speed > (1 + tolerance) * most
        )
    return statistics.fmean(wrong) if wrong else 0.0


def front(table: Table) -> list[TrialRecord]:
    """The points of the table that no other of their kind of training beats."""
    ok = [record for record in table.values() if record.outcome is Outcome.OK]
    return [point for point in ok if not any(_beats(other, point) for other in ok)]


def _figures(record: TrialRecord) -> tuple[float, float]:
    return record.measurements["device_peak_bytes"], record.measurements["samples_per_second"]


def _alike(one: TrialRecord, other: TrialRecord) -> bool:
    return kind_of_training(one.spec.equivalence) == kind_of_training(other.spec.equivalence)


def _beats(one: TrialRecord, other: TrialRecord) -> bool:
    (memory, speed), (other_memory, other_speed) = _figures(one), _figures(other)
    no_worse = memory <= other_memory and speed >= other_speed
    return no_worse and (memory, speed) != (other_memory, other_speed) and _alike(one, other)


def _as_good(one: TrialRecord, point: TrialRecord, tolerance: float) -> bool:
    (memory, speed), (point_memory, point_speed) = _figures(one), _figures(point)
    close = memory <= (1 + tolerance) * point_memory and speed >= (1 - tolerance) * point_speed
    return close and _alike(one, point)


def random_order(seed: int) -> MakeSearch:
    """Every trial once, in random order."""

    def make(trials: Iterable[TrialSpec]) -> Search:
        shuffled = list(trials)
        random.Random(seed).shuffle(shuffled)
        return Grid(shuffled)

    return make


def optuna(seed: int, sampler: str = "tpe") -> MakeSearch:
    """Optuna without a limit of its own."""
    return partial(Optuna, sampler=sampler, share=1.0, seed=seed)  # type: ignore[arg-type]


def informed(foretold: Mapping[str, float]) -> MakeSearch:
    """The frontier search, told beforehand what was predicted of the trials' memory."""
    return partial(Frontier, predicted=foretold)


def rivals(
    table: Table, noise: float, seed: int, foretold: Mapping[str, float]
) -> Mapping[str, Replay]:
    """The frontier search and, in the same slot seconds, the others, on a table with such noise."""
    noisy = with_noise(table, noise, seed)
    ours = replay(informed(foretold), noisy, truth=table)
    others = {
        "optuna, TPE": optuna(seed),
        "optuna, NSGA-II": optuna(seed, "nsga2"),
        "random": random_order(seed),
    }
    return {"frontier": ours} | {
        name: replay(make, noisy, truth=table, seconds=ours.seconds)
        for name, make in others.items()
    }


def report(
    name: str, table: Table, seeds: int, foretold: Mapping[str, float], workers: int | None = None
) -> Iterator[str]:
    """Lines: the searches on one table, without and with noise."""
    yield f"{name}: {len(front(table))} points on the frontiers of {len(table)} configurations"
    yield (
        f"  {'':28} {'trials':>6}  {'seconds':>7} {'worst':>7}  {'share':>6}"
        f"  {'recall':>6} {'worst':>6}  {'truth':>6} {'worst':>6}  {'height':>6}  {'audit':>6} {'wrong':>6}"
    )
    yield _line("grid", [replay(Grid, table)])
    if foretold:
        yield _line("frontier, nothing foretold", [replay(Frontier, table)])
    search = informed(foretold)
    once = replay(search, table)
    yield _line("frontier", [once])
    yield _line("frontier, 8 at once", [replay(search, table, at_once=8)])
    for share in SHARES:
        yield _line(
            f"frontier, cut at {share:.0%}", [replay(search, table, seconds=share * once.seconds)]
        )
    with ProcessPoolExecutor(workers) as pool:
        for noise in (0.0, *NOISES):
            runs = list(
                pool.map(rivals, repeat(table), repeat(noise), range(seeds), repeat(foretold))
            )
            for rival in runs[0]:
                yield _line(
                    f"{rival}{f', {noise:.0%} noise' if noise else ''}",
                    [run[rival] for run in runs],
                )


def _line(name: str, runs: Sequence[Replay]) -> str:
    seconds, recalls, truths = (
        [getattr(run, what) for run in runs] for what in ("seconds", "recall", "recall_of_truth")
    )
    return (
        f"  {name:28} {statistics.mean(run.trials for run in runs):6.1f}"
        f"  {statistics.mean(seconds):7.0f} {max(seconds):7.0f}  {statistics.mean(run.cost for run in runs):6.1%}"
        f"  {statistics.mean(recalls):6.1%} {min(recalls):6.1%}  {statistics.mean(truths):6.1%} {min(truths):6.1%}"
        f"  {statistics.mean(run.height for run in runs):6.1%}"
        f"  {max(run.audit_error for run in runs):6.1%} {statistics.mean(run.contradicted for run in runs):6.1%}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.replay",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "tables",
        type=Path,
        nargs="*",
        help="measured tables; default: those in tests/data, simulated",
    )
    parser.add_argument(
        "--seeds", type=int, default=100, help="noisy tables and random orders for each figure"
    )
    parser.add_argument("--workers", type=int, help="processes; default: one a core")
    options = parser.parse_args()
    paths = options.tables or sorted(DATA.glob("bert_large_h200*.parquet"))
    tables = {f"measured, {path.name}": recorded(path) for path in paths}
    if not options.tables:
        tables["measured, bert_large_h200.parquet, as today's stopping rule would have"] = (
            measured_anew()
        )
    foretold = {name: predicted(table) for name, table in tables.items()}
    if not options.tables:
        tables["SIMULATED, four precisions"] = simulated()
    for name, table in tables.items():
        for line in report(name, table, options.seeds, foretold.get(name, {}), options.workers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
