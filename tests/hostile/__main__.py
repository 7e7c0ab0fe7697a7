"""Runs from a stranger on every surface: ``python -m tests.hostile --runs 500 --seed 1``."""

import argparse
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile import surfaces
from tests.hostile.runs import hostile_run
from tests.support.browser import headless
from tests.support.damages import WHOLE
from tests.support.records import write_run

JOB_EVERY = 25
"""Starting a trial's process takes seconds: one run in so many has a record executed."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """What a surface did with all runs."""

    runs: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def campaign(seeds: Sequence[int], folder: Path) -> dict[str, Tally]:
    """Surface -> what came of the runs of these seeds."""
    tallies = defaultdict(Tally)
    plain = write_run(folder / "plain", list(WHOLE))
    with headless() as browser:
        for seed in seeds:
            for finding in _of_seed(seed, folder / str(seed), plain, browser):
                tally = tallies[finding.surface]
                tally.runs += 1
                tally.refused += finding.refused
                if finding.wrong:
                    tally.wrong.append(f"seed {seed}: {finding.wrong}")
            shutil.rmtree(folder / str(seed))
    return dict(tallies)


def _of_seed(seed: int, folder: Path, plain: Path, browser: Any) -> Iterator[surfaces.Finding]:
    work = folder / "work"
    work.mkdir(parents=True)
    run = hostile_run(folder / "run", seed)
    yield from surfaces.findings(run, plain, work)
    html = run / "report.html"
    if browser is not None and html.is_file():
        yield surfaces.page(browser, html)
    if seed % JOB_EVERY == 0:
        yield surfaces.job(run, work)


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
