"""How far it goes: many trials beside bare Ray Tune, a thousand slots, a run resumed, a million rows reported.

    python -m tests.benchmarks.scale [tune] [slots] [table] [--page docs/results/README.md]

``tune`` runs stand-ins for trials, which take no time, through this driver and Ray Tune, beside a bare Tune: in turn
in small rounds for the rate, then as many as ``--tune-trials`` each for the driver's memory. ``slots`` is the driver
without Ray: a thousand slots whose trials take simulated seconds; then the same run is resumed and published.
``table`` is ``orchestrator.report`` and ``orchestrator.recommend`` on a table of a million rows. ``--page`` puts it all
in that page's place for it, with a picture of the memory beside the page.

Wall time is what somebody waits on this machine now; processor time is what the same takes where nothing else runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import ray

from jobs.environment import cores
from tests.benchmarks import million
from tests.benchmarks.drivers import SLOTS_OF_TUNE, Run, bare, local_ray, ours, resume, slots

PARTS = ("tune", "slots", "table")
MIB = 2**20
BEGIN, END = "<!-- scale: written by `python -m tests.benchmarks.scale` -->", "<!-- /scale -->"
PICTURE = "scale.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a command took, in a process of its own."""

    seconds: float
    processor_seconds: float
    peak_gib: float

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s ({self.processor_seconds:.1f} s of processor time), {self.peak_gib:.1f} GiB at most"
        )


def cost_of(*command: str) -> Cost:
    """Run one of the verbs to its end."""
    begin = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return Cost(
        seconds=time.perf_counter() - begin,
        processor_seconds=used.ru_utime + used.ru_stime,
        peak_gib=used.ru_maxrss / 2**20,
    )


def beside_each_other(trials: int, rounds: int, scratch: Path) -> Iterator[str]:
    """Small rounds of both in turn, so that what else the machine does falls on both."""
    with local_ray():
        pairs = [
            (bare(trials, scratch / f"bare{place}"), ours(trials, scratch / f"ours{place}")) for place in range(rounds)
        ]
    ratios = sorted(mine.per_second / theirs.per_second for theirs, mine in pairs)
    yield "| driver | trials/s, median | least | most | its processor time, ms a trial |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for runs in zip(*pairs, strict=True):
        rates = sorted(run.per_second for run in runs)
        spent = statistics.median(run.milliseconds for run in runs)
        yield f"| {runs[0].name} | {statistics.median(rates):.1f} | {rates[0]:.1f} | {rates[-1]:.1f} | {spent:.1f} |"
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
        axes.plot(done, [size / MIB for size in run.resident_bytes], label=f"{run.name}: {run.trials:,} trials")
    axes.set(xlabel="trials ended", ylabel="resident memory of the driver, MiB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def told(run: Run) -> str:
    """Processor time, and what memory did after the first tenth."""
    tenth = len(run.resident_bytes) // 10
    grown = run.resident_bytes[-1] - run.resident_bytes[tenth]
    each = grown / (run.trials * (1 - (tenth + 1) / len(run.resident_bytes)))
    return (
        f"| {run.name} | {run.trials:,} | {run.milliseconds:.1f} | {run.resident_bytes[-1] / MIB:.0f}"
        f" | {grown / MIB:+.1f} | {each / 1024:.1f} |"
    )


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; or one way of Tune alone")
    parser.add_argument("--trials", type=int, default=10_000, help="over the simulated slots")
    parser.add_argument("--tune-trials", type=int, default=1_000, help="each way, for the memory")
    parser.add_argument("--rounds", type=int, default=3, help="each way, for the rate")
    parser.add_argument("--round", type=int, default=200, help="trials of a round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--page", type=Path, help="a Markdown page that has a place for it")
    options = parser.parse_args()
    if options.parts[0] in ("ours", "bare"):
        print(json.dumps(asdict(apart(options.parts[0], options.tune_trials))))
        return
    lines = []
    with TemporaryDirectory() as scratch:
        for line in itertools.chain(_origin(), _parts(options, Path(scratch))):
            print(line, flush=True)
            lines.append(line)
    if options.page:
        write(options.page, lines)


def write(page: Path, lines: Sequence[str]) -> None:
    """Put the lines in the page's place for them."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([before.rstrip("\n"), "", BEGIN, "", *lines, "", END]) + after)


def _origin() -> Iterator[str]:
    command = shlex.join(["python", "-m", "tests.benchmarks.scale", *sys.argv[1:]])
    load = os.getloadavg()[0]
    yield (
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {cores()} cores that had {load:.1f} processes wanting them at the"
        f" beginning, Linux {platform.release().partition('-')[0]}, Ray {ray.__version__}:"
    )
    yield ""


def _parts(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    runs: list[Run] = []
    if "tune" in options.parts:
        yield from beside_each_other(options.round, options.rounds, scratch)
        yield ""
        runs += [_in_its_own_process(way, options.tune_trials) for way in ("ours", "bare")]
    if "slots" in options.parts:
        runs.append(slots(options.trials, 1000, scratch / "slots"))
    if runs:
        columns = ("its processor time, ms a trial", "memory at the end, MiB", "since a tenth, MiB", "a trial, KiB")
        yield f"| driver | trials | {' | '.join(columns)} |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: |"
        yield from map(told, runs)
        yield ""
    if options.page and runs:
        picture(runs, options.page.parent / PICTURE)
        yield f"![Resident memory of the drivers over their trials]({PICTURE})"
        yield ""
    if "slots" in options.parts:
        resumed, published = resume(options.trials, scratch / "slots")
        yield f"A run of {options.trials:,} rows: resumed in {resumed}, tables and pages in {published}."
        yield ""
    if "table" in options.parts:
        million.write_table(scratch, options.rows)
        report = cost_of("orchestrator.report", str(scratch), "--open-nothing")
        answer = cost_of("orchestrator.recommend", str(scratch), "--memory", "24GiB")
        yield f"A table of {options.rows:,} rows: `orchestrator.report` {report}; `orchestrator.recommend` {answer}."


def _in_its_own_process(way: str, trials: int) -> Run:
    command = [sys.executable, "-m", "tests.benchmarks.scale", way, "--tune-trials", str(trials)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    raw = json.loads(done.stdout.splitlines()[-1])
    return Run(**{**raw, "resident_bytes": tuple(raw["resident_bytes"])})


if __name__ == "__main__":
    main()
