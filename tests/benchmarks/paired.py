"""Two runs' measurements of the same configurations: peaks, speeds, and what starved updates have to do with them.

    python -m tests.benchmarks.paired docs/results/2026-11-23-bert_large-2xh200 \\
        docs/results/2026-11-23-bert_large-2xh200/searched

An update that starves the GPU is its host's. If it explains why a configuration took longer in one run, steps differ
less without it. A speed's interval is of the steps of one trial: the pairs say how far another trial is from it.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.analysis.summary import label

from orchestrator.storage.tables import parquet
from tests.benchmarks.repeats import GPU_BOUND, is_the_gpus

SHOWN = 4
Row = Mapping[str, Any]
Pair = tuple[Row, Row]


def pairs(run: Path, other: Path) -> list[Pair]:
    """The rows of what was measured well in both, follow-ups apart."""
    one, two = map(_by_name, (run, other))
    return [(row, two[name]) for name, row in one.items() if name in two]


def named(run: Path) -> list[Row]:
    """A run's rows, with ``name``: what was chosen, in words."""
    trials = parquet.load(run)
    axes = parquet.axes_of(trials)
    rows = trials.to_pylist()
    return [
        {**row, "name": label({axis: row[column] for axis, column in axes.items()}, list(axes))}
        for row in rows
    ]


def _by_name(run: Path) -> dict[str, Row]:
    return {
        row["name"]: row for row in named(run) if row["outcome"] == "ok" and not row.get("follows")
    }


def report(both: Sequence[Pair]) -> Iterator[str]:
    """Lines."""
    alike = sum(one["peak_allocated_bytes"] == two["peak_allocated_bytes"] for one, two in both)
    device = sorted({two["device_peak_bytes"] - one["device_peak_bytes"] for one, two in both})
    ratios = [two["samples_per_second"] / one["samples_per_second"] for one, two in both]
    yield f"{len(both)} configurations in both: {alike} peaks allocated are equal to the byte"
    yield f"  the device's memory differs by {device[0] / 2**10:.0f} to {device[-1] / 2**10:.0f} KiB"
    yield f"  the second's speed is {min(ratios):.2f} to {max(ratios):.2f} times the first's"
    if own := [pair for pair in both if all(map(_is_known_to_be_the_gpus, pair))]:
        yield from _of_the_gpus(own)
    if starved := [pair for pair in both if _starved_in_updates_alone(pair)]:
        yield from _of_updates(starved)


def _is_known_to_be_the_gpus(row: Row) -> bool:
    return is_the_gpus(row) and row["samples_per_second_ci95"] is not None


def _of_the_gpus(own: Sequence[Pair]) -> Iterator[str]:
    beyond = sum(
        _apart(pair, _step) > math.hypot(*(row["samples_per_second_ci95"] for row in pair))
        for pair in own
    )
    yield (
        f"of {len(own)} whose speed is the GPU's own, {beyond} differ by more than both intervals;"
        f" steps of all differ by {_usual_and_most(own, _step)}; the most:"
    )
    for pair in _furthest(own):
        clocks = " and ".join(f"{row['gpu_sm_clock_mhz']:.0f}" for row in pair)
        yield f"  {_milliseconds(pair, _step)} a step, {clocks} MHz: {pair[0]['name']}"


def _of_updates(starved: Sequence[Pair]) -> Iterator[str]:
    yield (
        f"of {len(starved)} that are the GPU's but for updates that starved it, steps differ by"
        f" {_usual_and_most(starved, _step)}, without the updates by {_usual_and_most(starved, _rest)}; the most:"
    )
    for pair in _furthest(starved):
        yield f"  {_milliseconds(pair, _step)} a step, {_milliseconds(pair, _rest)} without: {pair[0]['name']}"


def _usual_and_most(both: Sequence[Pair], part: Callable[[Row], float]) -> str:
    apart = [_apart(pair, part) for pair in both]
    return f"{statistics.median(apart):.1%} (at most {max(apart):.1%})"


def _furthest(both: Sequence[Pair]) -> list[Pair]:
    return sorted(both, key=lambda pair: _apart(pair, _step), reverse=True)[:SHOWN]


def _milliseconds(pair: Pair, part: Callable[[Row], float]) -> str:
    return " and ".join(f"{part(row) * 1e3:.0f}" for row in pair) + " ms"


def _starved_in_updates_alone(pair: Pair) -> bool:
    others = max(
        row.get(f"{name}_share") or 0.0
        for row in pair
        for name in ("host_bound", "starved_forward")
    )
    are_told = all(row.get("launch_bound_update_share") is not None for row in pair)
    return are_told and others <= GPU_BOUND < max(map(_update, pair))


def _update(row: Row) -> float:
    return row.get("launch_bound_update_share") or 0.0


def _step(row: Row) -> float:
    return float(row["effective_batch"] / row["samples_per_second"])


def _rest(row: Row) -> float:
    return _step(row) * (1 - _update(row))


def _apart(pair: Pair, part: Callable[[Row], float]) -> float:
    one, two = map(part, pair)
    return abs(float(two / one) - 1)


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.paired")
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("other", type=Path, metavar="OTHER")
    options = parser.parse_args()
    print("\n".join(report(pairs(options.run, options.other))))


if __name__ == "__main__":
    main()
