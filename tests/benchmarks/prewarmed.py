"""Seconds from the command to the first trial of a sweep, with and without prewarmed parents.

python -m tests.benchmarks.prewarmed --rounds 3

Both ways alternate, so that a busy machine slows both. Each run is a sweep of
configs/quickstart.yaml in a process of its own, and ends after its first trial.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs/quickstart.yaml"
SWEEP = "from orchestrator import cli, sweep; cli.finish(sweep.main)"
WITHOUT = (
    "import contextlib; from jobs.isolation import prewarm; "
    "prewarm.parents = lambda cpus: contextlib.nullcontext(); "
)
"""Code that takes prewarmed parents away before the sweep begins."""
FIRST_TRIAL = "[ 1/"


def main() -> None:
    """Print each run, then the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.prewarmed")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(options.rounds):
        seconds["with"].append(seconds_to_first_trial(SWEEP))
        seconds["without"].append(seconds_to_first_trial(WITHOUT + SWEEP))
        print(f"with {seconds['with'][-1]:.1f} s, without {seconds['without'][-1]:.1f} s")
    for way, measured in seconds.items():
        print(f"median {way} prewarmed parents: {statistics.median(measured):.1f} s")


def seconds_to_first_trial(code: str) -> float:
    """From the start of the process to the line of its first trial."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, str(CONFIG), "--output", f"{folder}/run"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(FIRST_TRIAL):
                break
        elapsed = time.perf_counter() - begin
        # Ctrl-C lets the running trial finish, and leaves no process.
        process.send_signal(2)
        process.communicate()
        if process.returncode not in (0, 130):
            raise RuntimeError(f"the sweep ended with status {process.returncode}")
    return elapsed


if __name__ == "__main__":
    main()
