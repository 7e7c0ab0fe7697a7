"""Rows of recorded tables beside which somebody else used the GPU, by what the table holds: what they took of it.

    python -m tests.benchmarks.visited docs/results/2026-11-23-visited-2xh200/grid [RUN ...]

Tables from before trials looked while they trained do not say so themselves. A visitor that took less than libraries
may is not found in them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobs.node import gpu_sharing
from jobs.spec import Recipe
from tests.benchmarks.paired import Row, named


def visited(rows: Iterable[Row]) -> dict[str, str]:
    """Trial -> its configuration, what it took of the GPU if nobody else did, and what speaks against that."""
    said = {}
    for row in rows:
        recipe = Recipe(training_arguments={"optim": row["optimizer"]})
        if found := gpu_sharing.warnings(
            {name: value for name, value in row.items() if value is not None}, recipe
        ):
            said[row["trial_id"]] = f"{row['name']}: {_figures(row)}; {found[0]}"
    return said


def _figures(row: Row) -> str:
    speed = row["samples_per_second"]
    return f"{(row['device_peak_bytes'] or 0) / 2**30:.1f} GiB, " + (
        f"{speed:.1f}/s" if speed else row["outcome"]
    )


def report(runs: Sequence[Path]) -> Iterator[str]:
    """Lines."""
    for run in runs:
        found = visited(rows := named(run))
        yield f"{run}: {len(found)} of {len(rows)} rows"
        yield from (f"  {trial} {text}" for trial, text in found.items())


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.visited")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    print("\n".join(report(parser.parse_args().runs)))


if __name__ == "__main__":
    main()
