"""Runs from a stranger on every surface: ``python -m tests.hostile --runs 500 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hostile.campaign import campaign, table


def main() -> int:
    """Exit status: 0 if every run was inert or refused, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.runs)
    with tempfile.TemporaryDirectory() as folder:
        tallies = campaign(seeds, Path(folder))
    print("\n".join(table(tallies)))
    failed = False
    for surface, tally in tallies.items():
        for wrong in tally.wrong:
            failed = True
            print(f"{surface}: {wrong}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
