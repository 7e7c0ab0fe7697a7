"""Two runs' measurements of the same configurations: how far their peaks and speeds differ.

The confidence interval of a speed describes the steps of one trial. The pairs show how far another
trial of the same configuration is from it.
"""

import math
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.storage.tables.rows import Row
from orchestrator.units import KIB
from tests.benchmarks.grids import is_gpus_own
from tests.benchmarks.recorded.runs import dataset_of, full_label, ok_rows

LISTED = 4
"""So many of the pairs that differ most are listed."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration, measured in both runs."""

    label: str
    first: Row
    second: Row

    @property
    def steps(self) -> tuple[float, float]:
        """Seconds of a step of both rows."""
        batches, speeds = self.both("effective_batch"), self.both("samples_per_second")
        return batches[0] / speeds[0], batches[1] / speeds[1]

    @property
    def difference(self) -> float:
        """How far the second trial's step is from the first's, relative."""
        return abs(self.steps[1] / self.steps[0] - 1)

    def both(self, column: str) -> tuple[float, float]:
        """A column of both rows; 0 where it was not measured."""
        return self.first.get(column) or 0.0, self.second.get(column) or 0.0


def lines(options: Namespace) -> Iterator[str]:
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
    dataset = dataset_of(run)
    return {full_label(dataset, row): row for row in ok_rows(dataset)}


def report(pairs: Sequence[Pair]) -> Iterator[str]:
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


def _is_gpus_own(pair: Pair) -> bool:
    has_intervals = all(pair.both("samples_per_second_ci95"))
    return has_intervals and is_gpus_own(pair.first) and is_gpus_own(pair.second)


def _gpus_own(pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs:
        return
    # Both are half-widths of 95 % intervals; that of the difference is their root sum of squares.
    widths = [math.hypot(*pair.both("samples_per_second_ci95")) for pair in pairs]
    differences = [pair.difference for pair in pairs]
    outside = sum(own > width for own, width in zip(differences, widths, strict=True))
    yield f"of {len(pairs)} whose speed is the GPU's own, {outside} are outside both intervals"
    median, largest = statistics.median(differences), max(differences)
    yield f"  steps differ by {median:.1%} in the median, {largest:.1%} at most; most of all:"
    for pair in sorted(pairs, key=lambda pair: -pair.difference)[:LISTED]:
        steps = "{:.0f} and {:.0f} ms".format(*(1e3 * seconds for seconds in pair.steps))
        clocks = "{:.0f} and {:.0f} MHz".format(*pair.both("gpu_sm_clock_mhz"))
        yield f"  {steps} per step, {clocks}: {pair.label}"
