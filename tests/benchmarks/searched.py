"""A run of `search: frontier` beside the same configurations measured exhaustively: what it found, and what it said.

    python -m tests.benchmarks.searched docs/results/2026-11-22-frontier_search-2xh200

What followed the search is not counted. Whatever another machine measured is compared as it is: memory is the same
there, a host's speed is not.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.record import Outcome, TrialRecord
from orchestrator.storage.tables import parquet
from tests.benchmarks.grids import RUN, Table, recorded
from tests.benchmarks.repeats import is_the_gpus
from tests.benchmarks.replay import BOUNDS, TOLERANCE, front, height, recall, share_found

PARTS = 8
Row = Mapping[str, Any]


def report(run: Path, grid: Table) -> Iterator[str]:
    """Lines."""
    trials = parquet.load(run)
    axes = parquet.axes_of(trials)
    known = {_key(record.spec.choices, axes): record for record in grid.values()}
    rows = [row for row in trials.to_pylist() if row.get("purpose") in (None, "search")]
    pairs = [
        (row, known.get(_key({axis: row[name] for axis, name in axes.items()}, axes)))
        for row in rows
    ]
    both = [(row, record) for row, record in pairs if record is not None]
    measured = sorted(
        (pair for pair in both if pair[0]["outcome"] == "ok"),
        key=lambda pair: pair[0]["started_at"],
    )
    spent = sum(row["slot_seconds"] or 0.0 for row, _ in both)
    yield f"{len(measured)} of {len(both)} configurations measured in {spent:.0f} s of slot time"
    yield _account_of([row for row in rows if row["started_at"]])
    yield from _as_it_went(measured, grid, spent)
    yield _of_the_gpus(measured, grid)
    yield _as_it_measured_them(measured, grid)
    yield from _reasons(
        [(row["reason"] or "", record) for row, record in both if row["outcome"] == "skipped"]
    )


def _account_of(ran: list[Row]) -> str:
    """From the first trial's start to the last one's end, and what was not counted steps."""
    starts = [row["started_at"].timestamp() for row in ran]
    ends = [start + row["slot_seconds"] for start, row in zip(starts, ran, strict=True)]
    overheads = [row["overhead_seconds"] for row in ran if row["overhead_seconds"] is not None]
    return (
        f"  {max(ends) - min(starts):.0f} s from the first trial's start to the last one's end;"
        f" {sum(overheads):.0f} s beside counted steps, {statistics.median(overheads):.2f} s in the median trial"
    )


def _as_it_went(
    measured: list[tuple[Row, TrialRecord]], grid: Table, spent: float
) -> Iterator[str]:
    asked, seconds, part = [], 0.0, 1
    for row, record in measured:
        asked.append(record.trial_id)
        seconds += row["slot_seconds"]
        if seconds >= part / PARTS * spent or row is measured[-1][0]:
            part += 1
            yield (
                f"  after {len(asked):3} trials, {seconds:4.0f} s: {height(grid, asked):6.1%} of the frontiers' height,"
                f" {recall(grid, asked):6.1%} of their points within {TOLERANCE:.0%}"
            )


def _of_the_gpus(measured: list[tuple[Row, TrialRecord]], grid: Table) -> str:
    """What a host's pace, and its luck in that grid, have no part in."""

    def is_own(point: TrialRecord) -> bool:
        return is_the_gpus(point.measurements)

    share = recall(grid, [record.trial_id for _, record in measured], among=is_own)
    many, known = len(front(grid)), sum(is_own(point) for point in front(grid))
    return f"  of the {known} of the {many} points whose speed is the GPU's own: {share:.1%}"


def _as_it_measured_them(measured: list[tuple[Row, TrialRecord]], grid: Table) -> str:
    """Whether the grid knows anything better than what the search's own table holds."""
    own = [replace(record, measurements=row) for row, record in measured]
    points = front(grid)
    return f"  by the figures that the search itself measured: {share_found(points, own):.1%} of the {len(points)} points"


def _reasons(skipped: list[tuple[str, TrialRecord]]) -> Iterator[str]:
    said = [
        (bounds, known.measurements)
        for text, known in skipped
        if known.outcome is Outcome.OK and (bounds := BOUNDS.search(text))
    ]
    memory = sum(
        one["device_peak_bytes"] < (1 - TOLERANCE) * float(bounds[1]) * 2**30
        for bounds, one in said
    )
    speed = sum(
        one["samples_per_second"] > (1 + TOLERANCE) * float(bounds[2])
        for bounds, one in said
        if bounds[2]
    )
    yield f"of {len(said)} reasons the grid is over {TOLERANCE:.0%} beyond the memory of {memory}, the speed of {speed}"


def _key(choices: Mapping[str, object], axes: Iterable[str]) -> tuple[str, ...]:
    return tuple(str(choices[axis]) for axis in axes)


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.searched")
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument(
        "--grid", type=Path, default=RUN / "trials.parquet", metavar="TRIALS.parquet"
    )
    options = parser.parse_args()
    print("\n".join(report(options.run, recorded(options.grid))))


if __name__ == "__main__":
    main()
