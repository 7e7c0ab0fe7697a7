"""A run of `search: frontier` beside the same configurations measured exhaustively: what it found.

    python -m tests.benchmarks.searched docs/results/2026-11-22-frontier_search-2xh200

Follow-ups are not counted. Figures of another machine are compared as they are: memory is the same
there, the speed of a host is not.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.record import Outcome, TrialRecord
from orchestrator.storage.run_reader import read_run_folder
from orchestrator.storage.tables.rows import Row, is_of_the_search
from tests.benchmarks.grids import RUN, Table, is_gpus_own, recorded
from tests.benchmarks.replay_scores import (
    TOLERANCE,
    bound_errors,
    front,
    height,
    recall,
    share_found,
)

PARTS = 8
"""Progress is reported after each of this many equal parts of the slot time."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration: the run's row, and the exhaustive grid's record."""

    row: Row
    record: TrialRecord


def report(run: Path, grid: Table) -> Iterator[str]:
    """Lines: cost, course, recall and the reasons for skipping."""
    trials = read_run_folder(run).trials
    rows = [row for row in trials.rows if is_of_the_search(row)]
    pairs = list(_pairs(rows, grid, trials.axes))
    ok = [pair for pair in pairs if pair.row["outcome"] == Outcome.OK]
    ok.sort(key=_started_at)
    seconds = sum(pair.row["slot_seconds"] or 0.0 for pair in pairs)
    yield f"{len(ok)} of {len(pairs)} configurations measured in {seconds:.0f} s of slot time"
    yield _time_of([row for row in rows if row["started_at"]])
    yield from _course(ok, grid, seconds)
    yield _recall_of_gpus_own(ok, grid)
    yield _recall_by_own_figures(ok, grid)
    yield _reasons([pair for pair in pairs if pair.row["outcome"] == Outcome.SKIPPED])


def _pairs(rows: Iterable[Row], grid: Table, axes: Mapping[str, str]) -> Iterator[Pair]:
    """The rows whose configuration is in the grid."""
    by_choices = {}
    for record in grid.values():
        by_choices[tuple(str(record.spec.choices[axis]) for axis in axes)] = record
    for row in rows:
        measured = by_choices.get(tuple(str(row[column]) for column in axes.values()))
        if measured is not None:
            yield Pair(row, measured)


def _started_at(pair: Pair) -> float:
    return float(pair.row["started_at"].timestamp())


def _time_of(started: Sequence[Row]) -> str:
    """From the first trial's start to the last one's end, and the time besides counted steps."""
    starts = [row["started_at"].timestamp() for row in started]
    ends = [row["started_at"].timestamp() + row["slot_seconds"] for row in started]
    overheads = [row["overhead_seconds"] for row in started if row["overhead_seconds"] is not None]
    return (
        f"  {max(ends) - min(starts):.0f} s from the first trial's start to the last one's end;"
        f" {sum(overheads):.0f} s besides counted steps,"
        f" {statistics.median(overheads):.2f} s in the median trial"
    )


def _course(ok: Sequence[Pair], grid: Table, total_seconds: float) -> Iterator[str]:
    """What had been found after each part of the time."""
    asked = []
    seconds = 0.0
    part = 1
    for pair in ok:
        asked.append(pair.record.trial_id)
        seconds += pair.row["slot_seconds"]
        if seconds >= part / PARTS * total_seconds or pair is ok[-1]:
            part += 1
            yield (
                f"  after {len(asked):3} trials, {seconds:4.0f} s:"
                f" {height(grid, asked):6.1%} of the fronts' height,"
                f" {recall(grid, asked):6.1%} of their points within {TOLERANCE:.0%}"
            )


def _recall_of_gpus_own(ok: Sequence[Pair], grid: Table) -> str:
    """Recall of the points that the pace of a host has no part in."""

    def is_own(point: TrialRecord) -> bool:
        return is_gpus_own(point.measurements)

    points = front(grid)
    own_points = sum(is_own(point) for point in points)
    share = recall(grid, [pair.record.trial_id for pair in ok], among=is_own)
    own_share = f"the {own_points} of the {len(points)} points whose speed is the GPU's own"
    return f"  of {own_share}: {share:.1%}"


def _recall_by_own_figures(ok: Sequence[Pair], grid: Table) -> str:
    """Whether the grid has anything better than the table of the search itself."""
    measured = [replace(pair.record, measurements=pair.row) for pair in ok]
    points = front(grid)
    share = share_found(points, measured)
    return (
        f"  by the figures that the search itself measured: {share:.1%} of the {len(points)} points"
    )


def _reasons(skipped: Iterable[Pair]) -> str:
    errors = bound_errors((pair.row["reason"] or "", pair.record.measurements) for pair in skipped)
    return (
        f"of {len(errors)} reasons the grid is over {TOLERANCE:.0%} beyond"
        f" the memory of {sum(error.memory for error in errors)},"
        f" the speed of {sum(error.speed for error in errors)}"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.searched")
    parser.add_argument("run", type=Path, metavar="RUN")
    default = RUN / "trials.parquet"
    parser.add_argument("--grid", type=Path, default=default, metavar="TRIALS.parquet")
    options = parser.parse_args()
    for line in report(options.run, recorded(options.grid)):
        print(line)


if __name__ == "__main__":
    main()
