"""How long a browser takes to draw reports: wall and processor time, in headless Chromium.

    python -m tests.benchmarks.report_page [--rows 10000] [--rounds 5] [PAGE ...]

The page of ``--rows`` invented rows is drawn by this version. Other pages that are named, such as
another version's, are opened in interleaved rounds with it, so that other load on the machine
affects all equally. A page is drawn once the frame after the chart's last one is there. Processor
time is that of all of Chromium's processes, the graphics process included.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from orchestrator.analysis.dataset import build_dataset
from orchestrator.reporting.html import page as html
from orchestrator.reporting.report import Report
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import trial_table_columns
from orchestrator.storage.tables.parquet import TrialTable

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRAWN = '#chart[aria-busy="false"]'
FRAME = (
    "new Promise((drawn) => requestAnimationFrame(() => setTimeout(() => drawn(performance.now() / "
    "1000))))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """What one opening took, both in seconds."""

    elapsed: float
    processor: float


def report_of(rows: int) -> Report:
    """Invented configurations on two axes, no two equal in memory or speed."""
    invented = [
        {
            "trial_id": f"{place:012x}",
            "outcome": "ok",
            "environment_id": "one",
            "training_recipe": "{}",
            "micro_batch": 1 + place % 100,
            "accumulation": 1,
            "effective_batch": 1 + place % 100,
            "seed": place // 100,
            "peak_allocated_bytes": 2**30 + 7919 * place % 10_007 * 2**20,
            "samples_per_second": 10.0 + 104_729 * place % 10_009,
            "slot_seconds": 1.0,
        }
        for place in range(rows)
    ]
    table = TrialTable(
        rows=invented,
        columns=trial_table_columns(),
        axes={"micro_batch": "micro_batch", "seed": "seed"},
        run=RunMetadata(name="many"),
        environments={},
    )
    return Report(dataset=build_dataset(table, {}))


def processor_seconds(browser: Any) -> float:
    """What all processes of the browser have spent so far."""
    processes = browser.send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(process["cpuTime"] for process in processes))


def opened(browser: Any, page: Path) -> Drawing:
    """One page in a fresh tab of a browser that has just been started."""
    tab, session = (
        browser.new_page(viewport={"width": 1440, "height": 1000}),
        browser.new_browser_cdp_session(),
    )
    before = processor_seconds(session)
    tab.goto(page.as_uri())
    tab.wait_for_selector(DRAWN)
    elapsed = tab.evaluate(FRAME)
    return Drawing(elapsed=elapsed, processor=processor_seconds(session) - before)


def interleaved(pages: Sequence[Path], rounds: int) -> Mapping[Path, list[Drawing]]:
    """Every page ``rounds`` times, each time in a browser of its own: nothing is cached."""
    drawings: dict[Path, list[Drawing]] = {page: [] for page in pages}
    with sync_playwright() as started:
        for _ in range(rounds):
            for page in pages:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                drawings[page].append(opened(browser, page))
                browser.close()
    return drawings


def lines(drawings: Mapping[Path, list[Drawing]]) -> Iterator[str]:
    """A Markdown table; ratios are to the first page."""
    yield "| page | MB | drawn after, s: median (range) | processor, s | ratio of medians |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    first = statistics.median(own.elapsed for own in next(iter(drawings.values())))
    for page, own in drawings.items():
        elapsed = sorted(drawing.elapsed for drawing in own)
        middle = statistics.median(elapsed)
        spent = statistics.median(drawing.processor for drawing in own)
        drawn = f"{middle:.2f} ({elapsed[0]:.2f} to {elapsed[-1]:.2f})"
        size = page.stat().st_size / 1e6
        yield f"| {page.stem} | {size:.1f} | {drawn} | {spent:.2f} | {middle / first:.2f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as scratch:
        own = Path(scratch) / "this version.html"
        own.write_text(html.render(report_of(options.rows)))
        for line in lines(
            interleaved([own, *(page.resolve() for page in options.pages)], options.rounds)
        ):
            print(line)


if __name__ == "__main__":
    main()
