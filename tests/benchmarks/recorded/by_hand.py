"""What measuring by hand costs, and the share of it that a sweep took.

By hand is the method of the Hugging Face guides: one configuration at a time, in a process of its
own, for one epoch of 512 samples with a plain Trainer. ``python -m tests.benchmarks.by_hand``
measures it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jobs.record import Outcome
from orchestrator.analysis.dataset import load_dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What one configuration took."""

    choices: Mapping[str, Any]
    seconds: float
    """From the start of its process to its end."""
    training_seconds: float | None
    """Seconds of ``train()`` among them, by the Trainer's own account."""
    failure: str = ""
    """The last line that it printed, if it failed. Running out of memory has its price, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Configurations drawn from a plan, and their prices."""

    planned: int
    prices: tuple[Price, ...]

    @property
    def plan_seconds(self) -> float:
        """The whole plan at the mean price."""
        return self.planned * statistics.fmean(price.seconds for price in self.prices)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Sample:
        """What ``write`` wrote."""
        raw = json.loads(path.read_text())
        prices = tuple(Price(**price) for price in raw["prices"])
        return cls(planned=raw["planned"], prices=prices)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("sample", type=Path, metavar="FILE.json", help="what by_hand wrote")
    runs = "sweeps of the same plan, to state their share of the price"
    parser.add_argument("--runs", type=Path, nargs="*", default=[], metavar="RUN", help=runs)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of the file and the runs."""
    return report(Sample.read(options.sample), options.runs)


def report(sample: Sample, runs: Sequence[Path]) -> Iterator[str]:
    """Markdown: every price, the mean, the plan at that mean, and each run's share of it."""
    yield "| configuration | seconds | in train() | |"
    yield "| --- | ---: | ---: | --- |"
    for price in sample.prices:
        name = " · ".join(str(value) for value in price.choices.values())
        training = "" if price.training_seconds is None else f"{price.training_seconds:.1f}"
        yield f"| {name} | {price.seconds:.1f} | {training} | {price.failure.replace('|', ' ')} |"
    seconds = [price.seconds for price in sample.prices]
    yield ""
    yield f"{len(seconds)} of {sample.planned} configurations"
    mean = statistics.fmean(seconds)
    yield f"{min(seconds):.1f} to {max(seconds):.1f} s each, mean {mean:.1f} s"
    yield f"all {sample.planned} at that mean: {sample.plan_seconds:.0f} s"
    for run in runs:
        yield _share(run, sample.plan_seconds)


def _share(run: Path, plan_seconds: float) -> str:
    rows = load_dataset(run).rows
    seconds = sum(row["slot_seconds"] or 0.0 for row in rows)
    ran = sum(row["outcome"] != Outcome.SKIPPED for row in rows)
    return (
        f"{run}: {ran} trials, {seconds:.0f} s of slot time, {seconds / plan_seconds:.2%} of that"
    )
