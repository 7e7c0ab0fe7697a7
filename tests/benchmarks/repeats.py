"""How well speeds repeat: each configuration's coefficient of variation over repeats, GPUs, machines and days.

    python -m orchestrator.sweep tests/data/machines.yaml --output runs/machines-1
    python -m tests.benchmarks.repeats runs/machines-* [--beside runs/bert_large ...]

A sweep on another day or machine, into a folder of its own, adds its repeats, and so does what other sweeps measured of
the same configurations (``--beside``).
Rows that were host-bound in part are left out, for they measure their host; unlike GPU models or versions never meet.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.analysis.summary import label

from jobs.steady_state import launch_bound_share
from orchestrator.storage.tables import parquet

GPU_BOUND = 0.05
"""At most this share of the micro-batches found the GPU with nothing left to do."""
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """One configuration's repeats: samples a second, peak bytes and clock of each, and where they ran."""

    label: str
    speeds: tuple[float, ...]
    peak_bytes: frozenset[int]
    clocks: tuple[float, ...]
    """Mean SM clock of each repeat that NVML told one of, MHz."""
    gpus: int
    days: int

    @property
    def variation(self) -> float:
        """Standard deviation of the speeds, relative to their mean."""
        return statistics.stdev(self.speeds) / statistics.fmean(self.speeds)


def is_the_gpus(row: Row) -> bool:
    """Whether its speed is; older tables do not tell of starved passes and updates."""
    return max(row.get("host_bound_share") or 0.0, launch_bound_share(row)) <= GPU_BOUND


def repeated(runs: Sequence[Path], fewest: int, beside: Sequence[Path] = ()) -> Iterator[Repeated]:
    """The configurations of ``runs`` that ran at least ``fewest`` times there and ``beside`` together."""
    met: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    own: set[tuple[object, ...]] = set()
    for run in [*runs, *beside]:
        trials = parquet.load(run)
        axes = parquet.axes_of(trials)
        for row in trials.to_pylist():
            if row["outcome"] == "ok" and is_the_gpus(row) and not row.get("follows"):
                choices = {axis: row[column] for axis, column in axes.items()}
                key = (
                    row["environment_id"],
                    *sorted((axis, str(value)) for axis, value in choices.items()),
                )
                met[key].append({**row, "choices": choices})
                own |= {key} if run in runs else set()
    varying = _varying([met[key][0]["choices"] for key in own])
    for key, rows in met.items():
        if key in own and len(rows) >= fewest:
            yield Repeated(
                label=label(rows[0]["choices"], varying),
                speeds=tuple(row["samples_per_second"] for row in rows),
                peak_bytes=frozenset(row["peak_allocated_bytes"] for row in rows),
                clocks=tuple(
                    row["gpu_sm_clock_mhz"] for row in rows if row.get("gpu_sm_clock_mhz")
                ),
                gpus=len({row["gpu_uuid"] for row in rows}),
                days=len({row["started_at"].date() for row in rows}),
            )


def _varying(choices: Sequence[Mapping[str, object]]) -> list[str]:
    return (
        [axis for axis in choices[0] if len({str(one.get(axis)) for one in choices}) > 1]
        if choices
        else []
    )


def report(found: Sequence[Repeated]) -> Iterator[str]:
    """Markdown."""
    yield "| configuration | repeats | GPUs | days | samples/s | variation | SM clock, MHz | same peak to the byte |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for one in found:
        same = "yes" if len(one.peak_bytes) == 1 else "no"
        mean = statistics.fmean(one.speeds)
        places = f"{len(one.speeds)} | {one.gpus} | {one.days}"
        clocks = f"{min(one.clocks):.0f} to {max(one.clocks):.0f}" if one.clocks else ""
        yield f"| {one.label} | {places} | {mean:.1f} | {one.variation:.2%} | {clocks} | {same} |"
    variations = [one.variation for one in found]
    within = sum(variation <= 0.01 for variation in variations)
    worst = (
        f"median {statistics.median(variations):.2%}, worst {max(variations):.2%}"
        if found
        else "none repeated"
    )
    yield f"\n{within} of {len(found)} configurations vary by 1 % or less: {worst}"


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.repeats")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument(
        "--fewest", type=int, default=5, help="repeats of a configuration that counts"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs that repeat some of it",
    )
    options = parser.parse_args()
    print("\n".join(report(list(repeated(options.runs, options.fewest, options.beside)))))


if __name__ == "__main__":
    main()
