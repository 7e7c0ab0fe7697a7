"""How far the driver scales: trials beside plain Ray Tune, a thousand slots, 20,000 rows.

    python -m tests.benchmarks.scale [tune] [slots] [rows]

``tune`` gives trials that take no time to this driver and to plain Ray Tune, both at once, each in
a process and a Ray of its own. ``slots`` is the driver without Ray: a thousand slots, then the same
run resumed and published. ``rows`` is ``orchestrator.report`` and ``orchestrator.recommend`` on an
invented table. Seconds depend on what else this machine does; processor time much less.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from jobs.node.environment import cores
from jobs.record import Column
from orchestrator.reporting.publish import publish
from orchestrator.storage import layout
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.trial_table import TrialTable, table_of_records
from orchestrator.units import GIB, KIB, MIB
from tests.benchmarks import drivers
from tests.benchmarks.drivers import SLOTS_OF_TUNE, DriverRun
from tests.support.records import make_grid

ONE_DRIVER = "--driver"
DRIVERS = {"plain": drivers.plain_tune, "ours": drivers.ours}
BUDGETS = (16 * GIB, 24 * GIB, 40 * GIB, 80 * GIB)
SPEED_NOISE, MEMORY_NOISE = 0.05, 0.02
"""Relative standard deviations about the invented grid, so that no two rows are equal."""


def main() -> None:
    """Measure and print Markdown."""
    options = command_line().parse_args()
    if options.driver:
        print(json.dumps(dataclasses.asdict(one_driver(options.driver, options.tune_trials))))
        return
    print(f"{time.strftime('%Y-%m-%d')}, {cores()} cores, load {os.getloadavg()[0]:.1f}\n")
    with TemporaryDirectory() as scratch:
        for part in options.parts:
            for line in PARTS[part](options, Path(scratch)):
                print(line, flush=True)


def command_line() -> argparse.ArgumentParser:
    """What the benchmark takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    add = parser.add_argument
    add("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}")
    add("--trials", type=int, default=10_000, help="over the simulated slots")
    add("--tune-trials", type=int, default=500, help="of each driver and round")
    add("--rounds", type=int, default=3)
    add("--rows", type=int, default=20_000)
    add(ONE_DRIVER, choices=DRIVERS, help="run one driver alone")
    return parser


def tune(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Both drivers at once, round by round, so that other load on the machine slows both."""
    rounds = []
    for _ in range(options.rounds):
        processes = [_started(name, options.tune_trials) for name in DRIVERS]
        rounds.append([_ended(process) for process in processes])
    yield f"{options.tune_trials:,} trials of each driver at once, {SLOTS_OF_TUNE} slots each"
    yield ""
    yield "| round | plain, trials/s | ours, trials/s | ratio | plain, ms | ours, ms |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    ratios = [mine.per_second / plain.per_second for plain, mine in rounds]
    for number, (plain, mine) in enumerate(rounds):
        speeds = f"{plain.per_second:.2f} | {mine.per_second:.2f} | {ratios[number]:.2f}"
        yield f"| {number + 1} | {speeds} | {plain.milliseconds:.2f} | {mine.milliseconds:.2f} |"
    yield ""
    yield "ms are the driver's processor time per trial, Ray's threads in it included"
    yield f"median ratio of the rates: {statistics.median(ratios):.2f}"
    yield from memory_table(rounds[-1])


def one_driver(name: str, trials: int) -> DriverRun:
    """One driver in this process."""
    with TemporaryDirectory() as folder, drivers.local_ray():
        return DRIVERS[name](trials, Path(folder) / "run")


def _started(name: str, trials: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.benchmarks.scale"]
    command += [ONE_DRIVER, name, "--tune-trials", str(trials)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ended(process: subprocess.Popen[str]) -> DriverRun:
    """Raises RuntimeError if the driver failed."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a driver ended with status {process.returncode}")
    return DriverRun(**json.loads(output.splitlines()[-1]))


def memory_table(runs: Sequence[DriverRun]) -> Iterator[str]:
    """Markdown: resident memory after the last trial, and what each trial added."""
    yield ""
    yield "| driver | trials | MiB | KiB per trial after 10 % | after 50 % | ended, MiB |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for run in runs:
        last = run.resident_bytes[-1] / MIB
        growth = " | ".join(f"{_growth_kib(run, since):.1f}" for since in (0.1, 0.5))
        ended = run.ended_bytes / MIB
        yield f"| {run.name} | {run.trials:,} | {last:.0f} | {growth} | {ended:.0f} |"


def _growth_kib(run: DriverRun, since: float) -> float:
    """KiB of memory per trial, from a share of the trials to the last."""
    sizes = run.resident_bytes
    first = int(since * len(sizes))
    trials = run.trials * (len(sizes) - 1 - first) / len(sizes)
    return (sizes[-1] - sizes[first]) / trials / KIB


def slots(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """The driver without Ray, resumed and published."""
    folder = scratch / "slots"
    yield from memory_table([drivers.without_ray(options.trials, 1000, folder)])
    resumed = seconds_of(lambda: drivers.resume(options.trials, folder))
    published = seconds_of(lambda: publish(folder))
    yield f"a run of {options.trials:,} rows: resumed in {resumed}, published in {published}"


def seconds_of(work: Callable[[], object]) -> str:
    """How long it takes in this process."""
    began = time.perf_counter()
    processor_began = time.process_time()
    work()
    processor = time.process_time() - processor_began
    return f"{time.perf_counter() - began:.1f} s ({processor:.1f} s of processor time)"


def rows(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    """Two verbs on an invented table, each in a process of its own."""
    table = invented_table(options.rows)
    parquet.write(parquet.arrow_table(table), scratch / layout.TRIALS)
    yield f"a table of {options.rows:,} rows"
    yield cost_of("orchestrator.report", str(scratch), "--no-browser")
    yield cost_of("orchestrator.recommend", str(scratch), "--memory", "24GiB")


def invented_table(rows: int) -> TrialTable:
    """Different configurations of one GPU: an invented grid of 288, at many weight decays."""
    generator = random.Random(0)
    grid = table_of_records(make_grid(), RunMetadata(name="invented", budgets=BUDGETS))
    invented = []
    for number, row in zip(range(rows), itertools.cycle(grid.rows)):
        copy = {
            **row,
            "trial_id": f"{number:012x}",
            "weight_decay": number // len(grid.rows) / 1000,
        }
        if row.get("samples_per_second"):
            copy["samples_per_second"] *= generator.gauss(1, SPEED_NOISE)
            memory = row["device_peak_bytes"] * generator.gauss(1, MEMORY_NOISE)
            copy["device_peak_bytes"] = round(memory)
        invented.append(copy)
    return dataclasses.replace(
        grid,
        rows=invented,
        columns=(*grid.columns, Column("weight_decay", "float64", "Invented axis.")),
        axes={**grid.axes, "weight_decay": "weight_decay"},
    )


def cost_of(module: str, *arguments: str) -> str:
    """Run a verb in a process of its own. Raises RuntimeError if it fails."""
    began = time.perf_counter()
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{module} ended with status {process.returncode}")
    seconds = time.perf_counter() - began
    processor = used.ru_utime + used.ru_stime
    peak = used.ru_maxrss * KIB / GIB  # Linux counts in KiB
    return f"  {module}: {seconds:.1f} s ({processor:.1f} s of processor time), {peak:.2f} GiB"


PARTS = {"tune": tune, "slots": slots, "rows": rows}

if __name__ == "__main__":
    main()
