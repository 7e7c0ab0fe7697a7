"""Whole sweeps under a random killer: nothing lost, repeated, forgotten or left behind.

    python -m tests.chaos.killer [--sweeps 10] [--seed 1] [--strikes 2] [--jobs 1] [--page PAGE]

Each sweep trains tiny models on this machine's CPU, on a Ray of its own. At random times a random
process of it is killed or stopped, or its folder is touched. Where the driver ends, ``--resume``
goes on. A reader opens the tables and renders the report all the while. Exit status 0 if all held.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shlex
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import killer_page
from tests.chaos.struck_sweep import StruckSweep, SweepOutcome

DEADLINE_SECONDS = 420.0
"""How long nothing may happen: no record is written and the driver does not end.

Twice a trial's timeout and two minutes until a slot is given up, then Ray starts another."""


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.killer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--strikes", type=int, default=2, help="in each sweep")
    parser.add_argument("--jobs", type=int, default=1, help="sweeps at the same time")
    parser.add_argument("--page", type=Path, help="the Markdown page to write the table into")
    options = parser.parse_args()
    begin = time.monotonic()
    command = f"python -m tests.chaos.killer {shlex.join(sys.argv[1:])}".strip()
    outcomes: list[SweepOutcome] = []
    # A short path: Ray's sockets lie below it.
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="ck-"))

        def run(number: int) -> SweepOutcome:
            chance = random.Random(f"{options.seed}-{number}")
            sweep = StruckSweep(Path(root), number, chance, deadline_seconds=DEADLINE_SECONDS)
            return sweep.run(options.strikes)

        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        for outcome in pool.map(run, range(options.sweeps)):
            outcomes.append(outcome)
            number = len(outcomes)
            seconds = time.monotonic() - begin
            print(f"{seconds:6.0f} s  sweep {number}: {outcome.line()}", flush=True)
            for wrong in outcome.wrong():
                print(f"          !! {wrong}", flush=True)
            if options.page:
                killer_page.write(options.page, outcomes, command, seconds)
    print("\n".join(killer_page.table(outcomes)))
    return int(any(outcome.wrong() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
