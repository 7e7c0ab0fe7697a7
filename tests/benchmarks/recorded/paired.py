"""Two runs' measurements of the same configurations: how far their peaks and speeds differ.

The confidence interval of a speed describes the steps of one trial. The pairs show how far another
trial of the same configuration is from it. Optimizer updates that wait for kernel launches run at
the host's pace, so steps are also compared without them.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.tables.rows import Row
from orchestrator.units import KIB
from tests.benchmarks.grids import MAX_GPU_WAIT, is_gpus_own
from tests.benchmarks.recorded.runs import full_label, ok_rows

LISTED = 4
"""So many of the pairs that differ most are listed."""

Seconds = Callable[[Row], float]
"""Seconds of a row's step, or of a part of it."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration, measured in both runs."""

    label: str
    first: Row
    second: Row

    def difference(self, seconds: Seconds) -> float:
        """How far the second trial's seconds are from the first's, relative."""
        return abs(seconds(self.second) / seconds(self.first) - 1)

    def both(self, column: str) -> tuple[float, float]:
        """A column of both rows; 0 where it was not measured."""
        return self.first.get(column) or 0.0, self.second.get(column) or 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("other", type=Path, metavar="OTHER")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of two run folders."""
    return report(pairs(options.run, options.other))


def pairs(run: Path, other: Path) -> list[Pair]:
    """The configurations that ended ok in both runs, in the order of the first."""
    second = _rows_by_label(other)
    found = []
    for label, row in _rows_by_label(run).items():
        if label in second:
            found.append(Pair(label, row, second[label]))
    return found


def _rows_by_label(run: Path) -> dict[str, Row]:
    dataset = load_dataset(run)
    return {full_label(dataset, row): row for row in ok_rows(dataset)}


def report(pairs: Sequence[Pair]) -> Iterator[str]:
    """Equality of peaks, differences of speeds."""
    peaks = [pair.both("peak_allocated_bytes") for pair in pairs]
    equal = sum(first == second for first, second in peaks)
    device = [
        second - first for first, second in (pair.both("device_peak_bytes") for pair in pairs)
    ]
    speeds = [pair.both("samples_per_second") for pair in pairs]
    ratios = [second / first for first, second in speeds]
    yield f"{len(pairs)} configurations in both: {equal} peaks of allocated memory are equal"
    yield f"  the GPU's peaks differ by {min(device) / KIB:.0f} to {max(device) / KIB:.0f} KiB"
    yield f"  the second's speed is {min(ratios):.2f} to {max(ratios):.2f} times the first's"
    yield from _gpus_own([pair for pair in pairs if _is_gpus_own(pair)])
    yield from _launch_bound_updates([pair for pair in pairs if _waits_in_updates_alone(pair)])


def _is_gpus_own(pair: Pair) -> bool:
    has_intervals = all(pair.both("samples_per_second_ci95"))
    return has_intervals and is_gpus_own(pair.first) and is_gpus_own(pair.second)


def _gpus_own(pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs:
        return
    outside = sum(_is_outside_intervals(pair) for pair in pairs)
    yield f"of {len(pairs)} whose speed is the GPU's own, {outside} are outside both intervals"
    yield f"  steps differ by {_median_and_largest(pairs, _step)}; most of all:"
    for pair in _furthest(pairs):
        clocks = "{:.0f} and {:.0f} MHz".format(*pair.both("gpu_sm_clock_mhz"))
        yield f"  {_milliseconds(pair, _step)} per step, {clocks}: {pair.label}"


def _is_outside_intervals(pair: Pair) -> bool:
    # Both are half-widths of 95 % intervals; that of the difference is their root sum of squares.
    return pair.difference(_step) > math.hypot(*pair.both("samples_per_second_ci95"))


def _launch_bound_updates(pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs:
        return
    yield f"of {len(pairs)} that wait for launches only in optimizer updates:"
    yield f"  steps differ by {_median_and_largest(pairs, _step)}"
    yield f"  without the updates by {_median_and_largest(pairs, _without_update)}; most of all:"
    for pair in _furthest(pairs):
        rest = _milliseconds(pair, _without_update)
        yield f"  {_milliseconds(pair, _step)} per step, {rest} without: {pair.label}"


def _waits_in_updates_alone(pair: Pair) -> bool:
    """Whether only the updates were launch-bound. Older tables do not say that of them."""
    if any(row.get("launch_bound_update_share") is None for row in (pair.first, pair.second)):
        return False
    others = max(*pair.both("host_bound_share"), *pair.both("launch_bound_forward_share"))
    return others <= MAX_GPU_WAIT < max(pair.both("launch_bound_update_share"))


def _step(row: Row) -> float:
    return float(row["effective_batch"] / row["samples_per_second"])


def _without_update(row: Row) -> float:
    return _step(row) * (1 - (row["launch_bound_update_share"] or 0.0))


def _median_and_largest(pairs: Sequence[Pair], seconds: Seconds) -> str:
    differences = [pair.difference(seconds) for pair in pairs]
    return f"{statistics.median(differences):.1%} in the median, {max(differences):.1%} at most"


def _furthest(pairs: Sequence[Pair]) -> list[Pair]:
    return sorted(pairs, key=lambda pair: -pair.difference(_step))[:LISTED]


def _milliseconds(pair: Pair, seconds: Seconds) -> str:
    return f"{1e3 * seconds(pair.first):.0f} and {1e3 * seconds(pair.second):.0f} ms"
