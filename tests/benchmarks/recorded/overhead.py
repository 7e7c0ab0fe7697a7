"""What an isolated trial costs besides its counted steps, for each way to isolate it.

``python -m tests.benchmarks.overhead`` measures it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to isolate a trial, with the seconds of each trial."""

    name: str
    overhead_seconds: Sequence[float]
    """Besides the counted steps."""
    counted_seconds: Sequence[float]
    once_seconds: float = 0.0
    """Paid once, before the first trial."""


def write(ways: Sequence[Way], path: Path) -> None:
    """Write them as JSON."""
    path.write_text(json.dumps([asdict(way) for way in ways]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("ways", type=Path, metavar="FILE.json", help="what overhead wrote")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of a file."""
    return report([Way(**raw) for raw in json.loads(options.ways.read_text())])


def report(ways: Sequence[Way]) -> Iterator[str]:
    """Markdown."""
    yield "| process of a trial | overhead, s: median | least | most | counted steps, s | once, s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for way in ways:
        overhead = way.overhead_seconds
        seconds = (
            statistics.median(overhead),
            min(overhead),
            max(overhead),
            statistics.median(way.counted_seconds),
            way.once_seconds,
        )
        yield f"| {way.name} | {' | '.join(f'{own:.2f}' for own in seconds)} |"
