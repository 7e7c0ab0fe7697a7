"""How well speeds repeat: the variation of each configuration over runs, GPUs and days.

Runs on other days or machines, each in a folder of its own, add repeats. Rows that are host-bound
or launch-bound in part are left out, because they measure their host. Rows of unequal GPU models or
versions are never combined.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.analysis.dataset import load_dataset
from orchestrator.storage.tables.rows import Row
from tests.benchmarks.grids import is_gpus_own
from tests.benchmarks.recorded.runs import full_label, ok_rows

STEADY = 0.01


@dataclass(frozen=True, slots=True)
class Repeated:
    """One configuration and its rows."""

    label: str
    rows: list[Row] = field(default_factory=list)

    @property
    def variation(self) -> float:
        """Standard deviation of the speeds, relative to their mean."""
        return statistics.stdev(self._speeds) / statistics.fmean(self._speeds)

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table says of it."""
        gpus = {row["gpu_uuid"] for row in self.rows}
        days = {row["started_at"].date() for row in self.rows}
        clocks = [row["gpu_sm_clock_mhz"] for row in self.rows if row.get("gpu_sm_clock_mhz")]
        peaks = {row["peak_allocated_bytes"] for row in self.rows}
        return (
            self.label,
            f"{len(self.rows)}",
            f"{len(gpus)}",
            f"{len(days)}",
            f"{statistics.fmean(self._speeds):.1f}",
            f"{self.variation:.2%}",
            f"{min(clocks):.0f} to {max(clocks):.0f}" if clocks else "",
            "yes" if len(peaks) == 1 else "no",
        )

    @property
    def _speeds(self) -> list[float]:
        return [row["samples_per_second"] for row in self.rows]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    least = "leave out configurations with fewer repeats"
    parser.add_argument("--least", type=int, default=5, metavar="N", help=least)
    beside = "runs that repeat some of the configurations"
    parser.add_argument("--beside", type=Path, nargs="+", default=[], metavar="RUN", help=beside)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The figures of the runs."""
    return report(repeated(options.runs, options.least, options.beside))


def repeated(runs: Sequence[Path], least: int, beside: Sequence[Path] = ()) -> list[Repeated]:
    """The configurations of ``runs`` with at least so many repeats there and ``beside``."""
    groups: dict[tuple[str, str], Repeated] = {}
    for run in (*runs, *beside):
        dataset = load_dataset(run)
        for row in filter(is_gpus_own, ok_rows(dataset)):
            key = (row["environment_id"], full_label(dataset, row))
            if key not in groups and run in runs:
                groups[key] = Repeated(dataset.row_label(row))
            if key in groups:
                groups[key].rows.append(row)
    return [group for group in groups.values() if len(group.rows) >= least]


def report(groups: Sequence[Repeated]) -> Iterator[str]:
    """Markdown."""
    yield "| configuration | repeats | GPUs | days | samples/s | variation | SM MHz | equal peaks |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for group in groups:
        yield f"| {' | '.join(group.cells)} |"
    yield ""
    if not groups:
        yield "no configuration has so many repeats"
        return
    variations = [group.variation for group in groups]
    steady = sum(variation <= STEADY for variation in variations)
    median = statistics.median(variations)
    yield f"{steady} of {len(groups)} configurations vary by {STEADY:.0%} or less"
    yield f"median variation {median:.2%}, largest {max(variations):.2%}"
