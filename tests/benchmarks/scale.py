"""How far it goes: many trials beside bare Ray Tune, a thousand slots, a run resumed, a million rows reported.

    python -m tests.benchmarks.scale [tune] [slots] [table] [--page docs/results/README.md]

``tune`` runs stand-ins for trials, which take no time, through this driver and Ray Tune, and through a bare Tune: both
at once, each in a process and a Ray of its own, so that what else the machine does falls on both. ``slots`` is the
driver without Ray: a thousand slots whose trials take simulated seconds; then the same run is resumed and published.
``table`` is ``orchestrator.report`` and ``orchestrator.recommend`` on a table of a million rows. ``--page`` puts each
part in that page's place for it, with a picture of the memory beside the page.

Wall time is what somebody waits on this machine now; processor time is nearer to what it takes where nothing else runs.
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

from jobs.node.environment import cores
from tests.benchmarks import million
from tests.benchmarks.drivers import SLOTS_OF_TUNE, Run, bare, local_ray, ours, resume, slots

PARTS = ("tune", "slots", "table")
MIB = 2**20
PICTURE = "scale.png"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What a command took, in a process of its own."""

    seconds: float
    processor_seconds: float
    peak_gib: float

    def __str__(self) -> str:
        return f"{self.seconds:.0f} s ({self.processor_seconds:.1f} s of processor time), {self.peak_gib:.1f} GiB at most"


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


def beside_each_other(trials: int, rounds: int) -> list[tuple[Run, Run]]:
    """Of each round the bare Tune's and this driver's."""
    pairs = []
    for _ in range(rounds):
        theirs, mine = (_begun(way, trials) for way in ("bare", "ours"))
        pairs.append((_ended(theirs), _ended(mine)))
    return pairs


def _begun(way: str, trials: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.benchmarks.scale", way, "--tune-trials", str(trials)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ended(process: subprocess.Popen[str]) -> Run:
    told, _ = process.communicate()
    assert process.returncode == 0
    raw = json.loads(told.splitlines()[-1])
    return Run(**{**raw, "resident_bytes": tuple(raw["resident_bytes"])})


def rates(pairs: Sequence[tuple[Run, Run]]) -> Iterator[str]:
    """Speed and processor time, round by round, and their ratios."""
    yield "| round | bare Ray Tune, trials/s | this driver, trials/s | ratio | bare Ray Tune, ms | this driver, ms |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    ratios = [mine.per_second / theirs.per_second for theirs, mine in pairs]
    for number, ((theirs, mine), ratio) in enumerate(zip(pairs, ratios, strict=True), 1):
        figures = (
            theirs.per_second,
            mine.per_second,
            ratio,
            theirs.milliseconds,
            mine.milliseconds,
        )
        yield f"| {number} | {' | '.join(f'{figure:.2f}' for figure in figures)} |"
    yield ""
    yield (
        f"Both at once, {pairs[0][0].trials:,} trials each, {SLOTS_OF_TUNE} slots each; ms are the driver's processor"
        f" time a trial, Ray's threads in it included. Median ratio of the rates: {statistics.median(ratios):.2f}."
    )
    yield ""


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
        done = [
            run.trials * (place + 1) / len(run.resident_bytes)
            for place in range(len(run.resident_bytes))
        ]
        axes.plot(
            done,
            [size / MIB for size in run.resident_bytes],
            label=f"{run.name}: {run.trials:,} trials",
        )
    axes.set(xlabel="trials ended", ylabel="resident memory of the driver, MiB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path)


def told(run: Run) -> str:
    """What memory did after the first tenth and in the last half, and what it came to."""
    sizes = run.resident_bytes

    def each(since: int) -> float:
        """KiB a trial from one of the sizes to the last."""
        return (
            (sizes[-1] - sizes[since]) / (run.trials * (len(sizes) - 1 - since) / len(sizes)) / 1024
        )

    figures = f"{sizes[-1] / MIB:.0f} | {each(len(sizes) // 10):.1f} | {each(len(sizes) // 2):.1f}"
    return f"| {run.name} | {run.trials:,} | {figures} | {run.ended_bytes / MIB:.0f} |"


def main() -> None:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale")
    parser.add_argument(
        "parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; or one way of Tune alone"
    )
    parser.add_argument("--trials", type=int, default=10_000, help="over the simulated slots")
    parser.add_argument("--tune-trials", type=int, default=500, help="each way and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--page", type=Path, help="a Markdown page that has a place for it")
    options = parser.parse_args()
    if options.parts[0] in ("ours", "bare"):
        print(json.dumps(asdict(apart(options.parts[0], options.tune_trials))))
        return
    with TemporaryDirectory() as scratch:
        for part in options.parts:
            found = {"tune": _tune, "slots": _slots, "table": _table}[part](options, Path(scratch))
            lines = []
            for line in itertools.chain(_origin(), found):
                print(line, flush=True)
                lines.append(line)
            if options.page:
                write(options.page, part, lines)


def write(page: Path, part: str, lines: Sequence[str]) -> None:
    """Put the lines in the page's place for them."""
    begin, end = (
        f"<!-- scale {part}: written by `python -m tests.benchmarks.scale` -->",
        f"<!-- /scale {part} -->",
    )
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text("\n".join([before.rstrip("\n"), "", begin, "", *lines, "", end]) + after)


def _origin() -> Iterator[str]:
    command = shlex.join(["python", "-m", "tests.benchmarks.scale", *sys.argv[1:]])
    load = os.getloadavg()[0]
    yield (
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {cores()} cores that had {load:.1f} processes wanting them at the"
        f" beginning, Linux {platform.release().partition('-')[0]}, Ray {ray.__version__}:"
    )
    yield ""


def _memory(runs: Sequence[Run]) -> Iterator[str]:
    yield "| driver | trials | after the last, MiB | a trial since a tenth, KiB | in the last half, KiB | ended, MiB |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    yield from map(told, runs)
    yield ""


def _tune(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    pairs = beside_each_other(options.tune_trials, options.rounds)
    yield from rates(pairs)
    last = pairs[-1]
    yield from _memory(last)
    if options.page:
        picture(last, options.page.parent / PICTURE)
        yield f"![Resident memory of both drivers over their trials]({PICTURE})"


def _slots(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    yield from _memory([slots(options.trials, 1000, scratch / "slots")])
    resumed, published = resume(options.trials, scratch / "slots")
    yield f"A run of {options.trials:,} rows: resumed in {resumed}, tables and pages in {published}."


def _table(options: argparse.Namespace, scratch: Path) -> Iterator[str]:
    million.write_table(scratch, options.rows)
    report = cost_of("orchestrator.report", str(scratch), "--open-nothing")
    answer = cost_of("orchestrator.recommend", str(scratch), "--memory", "24GiB")
    yield f"A table of {options.rows:,} rows: `orchestrator.report` {report}; `orchestrator.recommend` {answer}."


if __name__ == "__main__":
    main()
