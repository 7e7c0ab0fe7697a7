"""Runs from a stranger on every surface: ``python -m tests.hostile --runs 500 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hostile.campaign import campaign


def main() -> int:
    """Exit status: 0 if every run was inert or refused, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tallies = campaign(range(options.seed, options.seed + options.runs), Path(folder))
    print("| surface | runs | refused in a sentence | wrong |\n| --- | ---: | ---: | ---: |")
    for surface, tally in tallies.items():
        print(f"| {surface} | {tally.runs} | {tally.refused} | {len(tally.wrong)} |")
    wrong = [f"{name}: {what}" for name, tally in tallies.items() for what in tally.wrong]
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
