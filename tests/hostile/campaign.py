"""Many hostile runs on every surface, and the table of what came of them."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hostile import surfaces
from tests.hostile.runs import hostile_run
from tests.support.browser import chromium
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


def campaign(seeds: Sequence[int], folder: Path, *, jobs_too: bool = True) -> dict[str, Tally]:
    """Surface -> what came of the runs of these seeds."""
    tallies: dict[str, Tally] = defaultdict(Tally)
    plain = write_run(folder / "plain", list(WHOLE))
    with _browser() as browser:
        for seed in seeds:
            for finding in _of_seed(seed, folder / str(seed), plain, browser, jobs_too=jobs_too):
                tally = tallies[finding.surface]
                tally.runs += 1
                tally.refused += finding.refused
                if finding.wrong:
                    tally.wrong.append(f"seed {seed}: {finding.wrong}")
            shutil.rmtree(folder / str(seed))
    return dict(tallies)


def _of_seed(
    seed: int, folder: Path, plain: Path, browser: Any, *, jobs_too: bool
) -> Iterator[surfaces.Finding]:
    work = folder / "work"
    work.mkdir(parents=True)
    run = hostile_run(folder / "run", seed)
    yield from surfaces.findings(run, plain, work)
    html = run / "report.html"
    if browser is not None and html.is_file():
        yield surfaces.page(browser, html)
    if jobs_too and seed % JOB_EVERY == 0:
        yield surfaces.job(run, work)


@contextlib.contextmanager
def _browser() -> Iterator[Any]:
    """Headless Chromium; None where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        yield None
        return
    program = chromium()
    if program is None:
        yield None
        return
    with sync_playwright() as started:
        running = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


def table(tallies: dict[str, Tally]) -> Iterator[str]:
    """The result as Markdown."""
    yield "| surface | runs | refused in a sentence | wrong |"
    yield "| --- | ---: | ---: | ---: |"
    for surface, tally in tallies.items():
        yield f"| {surface} | {tally.runs} | {tally.refused} | {len(tally.wrong)} |"


def kinds_of_wrong(tallies: dict[str, Tally]) -> Counter[str]:
    """How often each last line of what went wrong occurred."""
    return Counter(
        wrong.strip().splitlines()[-1] for tally in tallies.values() for wrong in tally.wrong
    )
