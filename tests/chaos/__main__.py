"""Break a real cluster under real sweeps, and see that no row is lost, missing or made twice.

    python -m tests.chaos [--faults 100] [--seed 1] [--kinds PART ...] [--train] [--page docs/reliability.md]

Every node is a network namespace with its own raylet, GPU (SIMULATED) and no view of the run folder. Trials are a
stand-in for training, made by the real actor, slot and forked child. What a trial does to itself it does once in every
phase; what happens around one happens while it stands still in a phase drawn by the seed. Exit
status 0 when everything came as it has to, else 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.chaos import arena, page
from tests.chaos.campaign import Campaign, Verdict, draw
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
    verdicts: list[Verdict] = []
    for trials, faults in parts.items():
        for verdict in _sweeps(trials, faults, options.seed, say):
            verdicts.append(verdict)
            say(
                "\n  !! ".join(
                    [f"{len(verdict.faults)} faults in {verdict.trials} trials", *verdict.wrong]
                )
            )
            if options.page:
                page.write(
                    options.page,
                    verdicts,
                    len(drawn),
                    f"python -m tests.chaos {shlex.join(sys.argv[1:])}",
                )
    print("\n".join(page.table(verdicts, len(drawn))))
    return any(verdict.wrong for verdict in verdicts)


def _sweeps(
    trials: str, faults: Sequence[tuple[Kind, str]], seed: int, say: Callable[[str], None]
) -> Iterator[Verdict]:
    if faults:
        with arena.Arena(trials).machines() as machines:
            machines.start(NODES)
            yield from Campaign(machines, seed, say).run(faults, at_once=AT_ONCE)


if __name__ == "__main__":
    sys.exit(main())
