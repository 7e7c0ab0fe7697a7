"""Break a real cluster under real sweeps, and check that no record is lost, missing or repeated.

    python -m tests.chaos [--faults 100] [--seed 1] [--kinds PART ...] [--train] [--page PAGE]

Every node is a network namespace with its own raylet and GPU (SIMULATED), which cannot see the run
folder. Trials only pretend to train, but their actor, slot and forked child are real. A trial
strikes itself once in every phase. Other faults strike a trial while it stands still in a phase
drawn by the seed. Exit status 0 if every fault had the effect that it has to have, else 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.chaos import arena, page
from tests.chaos.campaign import Campaign, SweepResult, draw
from tests.chaos.kinds import KINDS, Kind

NODES = 2
AT_ONCE = 15


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--faults", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kinds", nargs="+", default=[""], help="only kinds with one of these words in their name"
    )
    parser.add_argument(
        "--train", action="store_true", help="what a trial does to itself it does in real training"
    )
    parser.add_argument("--page", type=Path, help="the Markdown page to write the table into")
    options = parser.parse_args()
    arena.enter()
    kinds = [kind for kind in KINDS if any(word in kind.name for word in options.kinds)]
    drawn = draw(options.seed, options.faults, kinds)
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {text}", flush=True)

    inside = [fault for fault in drawn if not fault[0].is_outside]
    outside = [fault for fault in drawn if fault[0].is_outside]
    parts = {"training": inside, "standin": outside} if options.train else {"standin": drawn}
    results: list[SweepResult] = []
    for trials, faults in parts.items():
        for result in _sweeps(trials, faults, options.seed, say):
            results.append(result)
            counted = f"{len(result.faults)} faults in {result.trials} trials"
            say("\n  !! ".join([counted, *result.wrong]))
            if options.page:
                page.write(
                    options.page,
                    results,
                    len(drawn),
                    f"python -m tests.chaos {shlex.join(sys.argv[1:])}",
                )
    print("\n".join(page.table(results, len(drawn))))
    return any(result.wrong for result in results)


def _sweeps(
    trials: str, faults: Sequence[tuple[Kind, str]], seed: int, say: Callable[[str], None]
) -> Iterator[SweepResult]:
    if faults:
        with arena.Arena(trials).machines() as machines:
            machines.start(NODES)
            yield from Campaign(machines, seed, say).run(faults, at_once=AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
