"""How far it goes: ten thousand trials beside bare Ray Tune, a thousand slots, a run resumed, a million rows reported.

    python -m tests.benchmarks.scale [tune] [slots] [table] [--output DIR]

``tune`` runs stand-ins for trials, which take no time, through this driver and Ray Tune, beside a bare Tune: in turn
in small rounds for the rate, then as many as ``--trials`` each for the driver's memory. ``slots`` is the driver without
Ray: a thousand slots whose trials take simulated seconds; then the same run is resumed and published. ``table`` is
``orchestrator.report`` on a table of a million rows. ``--output`` gets a picture of the memory.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import ray

from jobs.environment import cores
from tests.benchmarks import million
from tests.benchmarks.drivers import SLOTS_OF_TUNE, Run, bare, local_ray, ours, resume, slots

PARTS = ("tune", "slots", "table")
MIB = 2**20


def report_of(rows: int, folder: Path) -> tuple[float, float]:
    """Seconds and peak resident GiB of ``orchestrator.report`` on a table of so many rows, in its own process."""
    million.write_table(folder, rows)
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator.report", str(folder), "--open-nothing"], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return time.perf_counter() - begin, used.ru_maxrss / 2**20


def beside_each_other(trials: int, rounds: int, scratch: Path) -> Iterator[str]:
    """Small rounds of both in turn, so that what else the machine does falls on both."""
    with local_ray():
        pairs = [
            (bare(trials, scratch / f"bare{place}"), ours(trials, scratch / f"ours{place}")) for place in range(rounds)
        ]
    ratios = sorted(mine.per_second / theirs.per_second for theirs, mine in pairs)
    yield "| driver | trials/s, median | least | most |"
    yield "| --- | ---: | ---: | ---: |"
    for name, runs in zip(("bare Ray Tune", "this driver"), zip(*pairs, strict=True), strict=True):
        rates = sorted(run.per_second for run in runs)
        yield f"| {name} | {statistics.median(rates):.1f} | {rates[0]:.1f} | {rates[-1]:.1f} |"
    yield ""
    yield (
        f"{rounds} rounds of {trials} trials each way, {SLOTS_OF_TUNE} slots: this driver's rate is"
        f" {statistics.median(ratios):.3f} of bare Tune's (median of the rounds; {ratios[0]:.3f} to {ratios[-1]:.3f})."
    )


def apart(way: str, trials: int) -> Run:
    """One way in a process of its own, whose memory is its own."""
    with TemporaryDirectory() as folder, local_ray():
        return {"ours": ours, "bare": bare}[way](trials, Path(folder) / "run")


def picture(runs: Sequence[Run], path: Path) -> None:
    """Resident memory over the trials."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), dpi=130, layout="constrained")
    axes = figure.subplots()
    for run in runs:
        done = [run.trials * (place + 1) / len(run.resident_bytes) for place in range(len(run.resident_bytes))]
        axes.plot(done, [size / MIB for size in run.resident_bytes], label=run.name)
    axes.set(xlabel="trials ended", ylabel="resident memory of the driver, MiB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def told(run: Run) -> str:
    """Speed, and what memory did between the first tenth and the end."""
    tenth = run.resident_bytes[len(run.resident_bytes) // 10]
    growth = (run.resident_bytes[-1] - tenth) / MIB
    return (
        f"| {run.name} | {run.trials:,} | {run.per_second:.1f} | {run.resident_bytes[-1] / MIB:.0f} | {growth:+.0f} |"
    )


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; or one way of Tune alone")
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5, help="each way, for the rate")
    parser.add_argument("--round", type=int, default=300, help="trials of a round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="folder for memory.png")
    options = parser.parse_args()
    if options.parts[0] in ("ours", "bare"):
        print(json.dumps(asdict(apart(options.parts[0], options.trials))))
        return
    print(f"{cores()} cores, {platform.platform()}, Ray {ray.__version__}, {time.strftime('%Y-%m-%d')}\n", flush=True)
    with TemporaryDirectory() as scratch:
        for line in _parts(options, Path(scratch)):
            print(line, flush=True)


def _parts(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    runs: list[Run] = []
    if "tune" in options.parts:
        yield from beside_each_other(options.round, options.rounds, scratch)
        runs += [_in_its_own_process(way, options.trials) for way in ("ours", "bare")]
    if "slots" in options.parts:
        runs.append(slots(options.trials, 1000, scratch / "slots"))
    if runs:
        yield "\n| driver | trials | trials/s | memory at the end, MiB | since a tenth of them, MiB |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        yield from map(told, runs)
    if options.output and runs:
        picture(runs, options.output / "memory.png")
    if "slots" in options.parts:
        resumed, published = resume(options.trials, scratch / "slots")
        yield f"\nA run of {options.trials:,} rows: resumed in {resumed:.1f} s, tables and pages in {published:.1f} s."
    if "table" in options.parts:
        seconds, gib = report_of(options.rows, scratch)
        yield f"\n`orchestrator.report` of a table of {options.rows:,} rows: {seconds:.0f} s, {gib:.1f} GiB at most."


def _in_its_own_process(way: str, trials: int) -> Run:
    command = [sys.executable, "-m", "tests.benchmarks.scale", way, "--trials", str(trials)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    raw = json.loads(done.stdout.splitlines()[-1])
    return Run(**{**raw, "resident_bytes": tuple(raw["resident_bytes"])})


if __name__ == "__main__":
    main()
