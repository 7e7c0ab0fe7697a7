"""What a sweep makes of several GPUs of one host, against the same trials on one GPU.

    CUDA_VISIBLE_DEVICES=0 python -m orchestrator.sweep tests/data/equal_trials.yaml --output A
    CUDA_VISIBLE_DEVICES=0,1 python -m orchestrator.sweep tests/data/equal_trials.yaml --output B
    python -m tests.benchmarks.tables efficiency A B

Efficiency is the span of one GPU's trials, first start to last end, divided by n times the span of
n GPUs. Slots lose time before their first trial, between trials and after their last; a trial can
also be slower beside others.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.recorded.runs import ok_rows

PHASES = {
    "setup": "setup_seconds",
    "first step": "first_step_seconds",
    "counted steps": "counted_seconds",
}
"""Phase of a trial -> its column. The rest is reading back and the end of the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Where the time of a sweep's slots went, in seconds; sums over the slots."""

    gpus: int
    trials: int
    span_seconds: float
    """From the first trial's start to the last one's end."""
    trial_seconds: float
    before_seconds: float
    between_seconds: float
    after_seconds: float
    phase_seconds: dict[str, float]
    """Phase -> its mean over the trials."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    runs = "sweeps, that of one GPU first; or one JSON file of such accounts"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=runs)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of the sweeps."""
    accounts: list[Account] = []
    for path in options.runs:
        accounts += [account(ok_rows(load_dataset(path)))] if path.is_dir() else recorded(path)
    return report(accounts)


def recorded(path: Path) -> list[Account]:
    """The accounts in a file, as docs/results keeps those of 2026-11-22."""
    names = [field.name for field in fields(Account)]
    return [Account(**{name: raw[name] for name in names}) for raw in json.loads(path.read_text())]


def account(rows: Sequence[Row]) -> Account:
    """Where the slots' time went, from the trials' starts and seconds."""
    slots: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        start = row["started_at"].timestamp()
        slots.setdefault(row["gpu_uuid"], []).append((start, start + row["slot_seconds"]))
    trials = [sorted(slot) for slot in slots.values()]
    first = min(slot[0][0] for slot in trials)
    last = max(slot[-1][1] for slot in trials)
    return Account(
        gpus=len(slots),
        trials=len(rows),
        span_seconds=last - first,
        trial_seconds=sum(row["slot_seconds"] for row in rows),
        before_seconds=sum(slot[0][0] - first for slot in trials),
        between_seconds=sum(_between(slot) for slot in trials),
        after_seconds=sum(last - slot[-1][1] for slot in trials),
        phase_seconds=_phases(rows),
    )


def _between(slot: Sequence[tuple[float, float]]) -> float:
    return sum(later[0] - earlier[1] for earlier, later in pairwise(slot))


def _phases(rows: Sequence[Row]) -> dict[str, float]:
    seconds = {}
    for name, column in PHASES.items():
        seconds[name] = statistics.fmean(row[column] for row in rows)
    whole = statistics.fmean(row["slot_seconds"] for row in rows)
    return {**seconds, "rest": whole - sum(seconds.values())}


def report(accounts: Sequence[Account]) -> Iterator[str]:
    """Markdown: the slots' time, then the phases of a trial."""
    one = accounts[0]
    yield "| GPUs | trials | efficiency | span, s | trials, s | before, s | between, s | after, s |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for own in accounts:
        efficiency = one.gpus * one.span_seconds / (own.gpus * own.span_seconds)
        lost = (own.before_seconds, own.between_seconds, own.after_seconds)
        seconds = _cells((own.span_seconds, own.trial_seconds, *lost), digits=1)
        yield f"| {own.gpus} | {own.trials} | {efficiency:.1%} | {seconds} |"
    yield ""
    yield f"| GPUs | {' | '.join(f'{name}, s' for name in one.phase_seconds)} |"
    yield "| ---: |" + " ---: |" * len(one.phase_seconds)
    for own in accounts:
        yield f"| {own.gpus} | {_cells(list(own.phase_seconds.values()), digits=2)} |"


def _cells(seconds: Sequence[float], digits: int) -> str:
    return " | ".join(f"{own:.{digits}f}" for own in seconds)
