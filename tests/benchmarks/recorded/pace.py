"""Trials per GPU-minute of a sweep, and what a trial takes besides its counted steps."""

import argparse
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.tables.rows import Row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="a sweep of one GPU")


def lines(options: argparse.Namespace) -> Iterator[str]:
    return report(load_dataset(options.run).rows)


def report(rows: Sequence[Row]) -> Iterator[str]:
    """Pace of the trials that ran: from the first one's start to the last one's end."""
    ran = [row for row in rows if row["started_at"]]
    starts = [row["started_at"].timestamp() for row in ran]
    ends = [row["started_at"].timestamp() + row["slot_seconds"] for row in ran]
    span = max(ends) - min(starts)
    slot_seconds = sum(row["slot_seconds"] for row in ran)
    overheads = [row["overhead_seconds"] for row in ran if row["overhead_seconds"] is not None]
    counts = Counter(row["outcome"] for row in ran).most_common()
    outcomes = ", ".join(f"{number} {outcome}" for outcome, number in counts)
    yield f"{len(ran)} trials ({outcomes}) in {span:.1f} s, {slot_seconds:.1f} s of it slot time"
    yield f"{60 * len(ran) / span:.1f} trials per GPU-minute"
    yield f"the median trial took {statistics.median(overheads):.2f} s besides its counted steps"
