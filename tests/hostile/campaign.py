"""Many hostile runs on every surface, and what came of them."""

from __future__ import annotations

import shutil
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
    tallies: dict[str, Tally] = defaultdict(Tally)
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
