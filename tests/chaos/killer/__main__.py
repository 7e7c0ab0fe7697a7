"""Whole sweeps under a random killer: nothing lost, repeated, forgotten or left behind.

    python -m tests.chaos.killer [--sweeps 60] [--seed 1] [--jobs 1] [--page PAGE]

Each sweep trains tiny models on this machine's CPU, on a Ray of its own. At random times a random
process of it is killed or stopped, or its folder or a disk is damaged. Where the driver ends,
``--resume`` goes on. A reader opens the tables and renders the report all the while. Every kind of
strike gets equally many turns. Exit status 0 if all held.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import namespaces, page
from tests.chaos.killer.outcome import SweepOutcome, table
from tests.chaos.killer.struck_sweep import StruckSweep, planned_trials
from tests.chaos.killer.victims import STRIKES, Strike

_MOST_ROUNDS = 4
"""A strike may find its sweep complete already. It gets as many further sweeps, at most."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.killer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sweeps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="sweeps at the same time")
    parser.add_argument("--page", type=Path, help="the Markdown page to write the table into")
    options = parser.parse_args()
    begin = time.monotonic()
    has_mounts = namespaces.enter()
    kinds = [kind for kind in STRIKES if has_mounts or not kind.needs_mounts]
    names = [kind.name for kind in STRIKES]
    hands = draw(options.seed, options.sweeps, kinds)
    wanted = Counter(kind.name for hand in hands for kind in hand)
    planned = planned_trials()
    outcomes: list[SweepOutcome] = []
    # A short path: Ray's sockets lie below it.
    with (
        tempfile.TemporaryDirectory(prefix="ck-") as root,
        ThreadPoolExecutor(options.jobs) as pool,
    ):

        def run(number: int, hand: Sequence[Strike]) -> SweepOutcome:
            chance = random.Random(f"{options.seed}-{number}")
            sweep = StruckSweep(Path(root), number, chance, planned, has_mounts=has_mounts)
            try:
                return sweep.run(hand)
            except Exception:  # a fault of this campaign, which the other sweeps must not miss
                sweep.outcome.wrong["unexpected"].append(traceback.format_exc()[-2000:])
                return sweep.outcome

        if has_mounts:
            # A shared memory of this campaign's own, so that what is left there is known to be its.
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
        for _ in range(_MOST_ROUNDS):
            first = len(outcomes)
            for outcome in pool.map(run, range(first, first + len(hands)), hands):
                outcomes.append(outcome)
                print(f"{time.monotonic() - begin:6.0f} s  {outcome.line()}", flush=True)
                for name, found in outcome.wrong.items():
                    for what in found:
                        print(f"          !! {name}: {what}", flush=True)
            happened = Counter(strike.name for one in outcomes for strike in one.strikes)
            missing = wanted - happened
            # The sweeps of further rounds have one strike each.
            hands = [(kind,) for kind in kinds for _ in range(missing[kind.name])]
        if has_mounts:
            outcomes[-1].wrong["temporary"] += os.listdir("/dev/shm")
    if options.page:
        took = f", {(time.monotonic() - begin) / 60:.0f} minutes"
        page.write(options.page, "killer", "tests.chaos.killer", table(outcomes, names), took)
    print("\n".join(table(outcomes, names)))
    return int(any(found for outcome in outcomes for found in outcome.wrong.values()))


def draw(seed: int, sweeps: int, kinds: Sequence[Strike]) -> list[tuple[Strike, ...]]:
    """The two strikes of each sweep. Every kind is drawn equally often, give or take one."""
    chance = random.Random(f"{seed}-kinds")
    deck: list[Strike] = []
    while len(deck) < 2 * sweeps:
        deck += chance.sample(kinds, len(kinds))
    # The start of two drivers can only be a sweep's first strike.
    pairs = (deck[2 * number : 2 * number + 2] for number in range(sweeps))
    return [tuple(sorted(pair, key=lambda kind: not kind.is_at_start)) for pair in pairs]


if __name__ == "__main__":
    sys.exit(main())
