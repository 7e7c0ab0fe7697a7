"""How long ``--dry-run`` takes, as a multiple of an interpreter that imports yaml and pydantic.

``python -m tests.benchmarks.start_up`` prints a row for each shipped config: the medians of CPU
time and of elapsed time, and their ratios. All commands run in turn, so that a change of the
machine's speed meets all of them. CPU time is steadier where other programs run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BARE = (sys.executable, "-c", "import yaml, pydantic")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a command, in seconds."""

    cpu: float
    elapsed: float


def main() -> None:
    """Run every command ``--repeats`` times and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("configs", nargs="*", type=Path, help="default: all of configs/")
    options = parser.parse_args()
    configs = options.configs or sorted((ROOT / "configs").glob("*.yaml"))
    commands = {path.name: dry_run(path) for path in configs}
    bare: list[Run] = []
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    # Python keeps the byte code of what it has compiled, so first runs are not counted.
    for command in commands.values():
        timed(command)
    for _ in range(options.repeats):
        bare.append(timed(BARE))
        for name, command in commands.items():
            runs[name].append(timed(command))
    print("\n".join(table(bare, runs)))


def dry_run(config: Path) -> Sequence[str]:
    """The command that plans a config."""
    return (sys.executable, "-m", "orchestrator.sweep", str(config), "--dry-run")


def timed(command: Sequence[str]) -> Run:
    """Run a command to its end. Raises CalledProcessError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, check=True)
    elapsed = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The usage of children grows when a child has ended: the difference is this child's own.
    user = after.ru_utime - before.ru_utime
    system = after.ru_stime - before.ru_stime
    return Run(cpu=user + system, elapsed=elapsed)


def _environment() -> dict[str, str]:
    """This process's environment, in which Python keeps the byte code of what it imports."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def table(bare: Sequence[Run], runs: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """The lines of the table. Times are milliseconds."""
    bare_cpu = _median_cpu(bare)
    bare_elapsed = _median_elapsed(bare)
    yield "| dry run of | CPU ms | × | elapsed ms | × |"
    yield "| --- | --- | --- | --- | --- |"
    yield f"| `import yaml, pydantic` | {1000 * bare_cpu:.0f} | | {1000 * bare_elapsed:.0f} | |"
    for name, repeats in runs.items():
        cpu = _median_cpu(repeats)
        elapsed = _median_elapsed(repeats)
        in_cpu = f"{1000 * cpu:.0f} | {cpu / bare_cpu:.2f}"
        in_elapsed = f"{1000 * elapsed:.0f} | {elapsed / bare_elapsed:.2f}"
        yield f"| {name} | {in_cpu} | {in_elapsed} |"


def _median_cpu(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu for run in runs)


def _median_elapsed(runs: Sequence[Run]) -> float:
    return statistics.median(run.elapsed for run in runs)


if __name__ == "__main__":
    main()
