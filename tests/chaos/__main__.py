"""Break a real cluster under real sweeps, and check that no record is lost, missing or repeated.

    python -m tests.chaos [--faults 100] [--seed 1] [--kinds PART ...] [--page PAGE]

Every node is a network namespace with its own raylet and GPU (SIMULATED), which cannot see the run
folder. Trials only pretend to train, but their actor, slot and forked child are real. A trial
strikes itself once in every phase. Other faults strike a trial while it stands still in a phase
drawn by the seed. Exit status 0 if every fault had the effect that it has to have, else 1.
"""

import argparse
import sys
import time
from pathlib import Path

from tests.chaos import campaign, namespaces, page
from tests.chaos.arena import Arena
from tests.chaos.kinds import KINDS


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--faults", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--kinds", nargs="+", default=[""], help="only kinds with one of these words in their name"
    )
    parser.add_argument("--page", type=Path, help="the Markdown page to write the table into")
    options = parser.parse_args()
    if not namespaces.enter("--net", tools=("nsenter", "ip")):
        sys.exit(
            "a chaos run needs iproute2, util-linux and namespaces,"
            " which this system does not grant"
        )
    kinds = [kind for kind in KINDS if any(word in kind.name for word in options.kinds)]
    faults = campaign.draw(options.seed, options.faults, kinds)
    begin = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begin:6.0f} s  {text}", flush=True)

    results = []
    with Arena().machines(nodes=2) as machines:
        for result in campaign.Campaign(machines, options.seed, say, len(faults)).run(faults):
            results.append(result)
            say(f"{len(result.faults)} faults in {result.trials} trials")
            for name, found in result.wrong.items():
                for what in found:
                    say(f"  !! {name}: {what}")
            if options.page:
                table = campaign.table(results, len(faults))
                page.write(options.page, table)
    print("\n".join(campaign.table(results, len(faults))))
    return int(any(found for result in results for found in result.wrong.values()))


if __name__ == "__main__":
    sys.exit(main())
