"""How long a browser takes to draw reports: seconds and processor time, in headless Chromium.

    python -m tests.benchmarks.report_page [--rows 10000] [--rounds 5] [PAGE ...]

This version draws a page of invented rows. Other pages, such as another version's, are opened in
interleaved rounds with it, so that other load on the machine affects all of them. A page is drawn
once the frame after the chart's last one is there. Processor time is that of all of Chromium's
processes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.analysis.dataset import build_dataset
from orchestrator.reporting.html import page as html
from orchestrator.reporting.report import Report
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import trial_table_columns
from orchestrator.storage.tables.trial_table import TrialTable
from orchestrator.units import GIB, MIB
from tests.support.browser import chromium

CHROMIUM = chromium()
DRAWN = '#chart[aria-busy="false"]'
FRAME = (
    "new Promise((drawn) => requestAnimationFrame(() => setTimeout(() => drawn(performance.now() / "
    "1000))))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """What one opening took, in seconds."""

    elapsed: float
    processor: float


def report_of(rows: int) -> Report:
    """Invented configurations on two axes, no two equal in memory or speed."""
    table = TrialTable(
        rows=[_invented_row(number) for number in range(rows)],
        columns=trial_table_columns(),
        axes={"micro_batch": "micro_batch", "seed": "seed"},
        run=RunMetadata(name="many"),
        environments={},
    )
    return Report(dataset=build_dataset(table, {}))


def _invented_row(number: int) -> dict[str, Any]:
    # Multiples of a prime, modulo another one, are all different.
    return {
        "trial_id": f"{number:012x}",
        "outcome": "ok",
        "environment_id": "one",
        "training_recipe": "{}",
        "micro_batch": 1 + number % 100,
        "accumulation": 1,
        "effective_batch": 1 + number % 100,
        "seed": number // 100,
        "peak_allocated_bytes": GIB + 7919 * number % 10_007 * MIB,
        "samples_per_second": 10.0 + 104_729 * number % 10_009,
        "slot_seconds": 1.0,
    }


def interleaved(pages: Sequence[Path], rounds: int) -> Mapping[Path, list[Drawing]]:
    """Every page ``rounds`` times, each time in a new browser: nothing is cached."""
    from playwright.sync_api import sync_playwright

    drawings: dict[Path, list[Drawing]] = {page: [] for page in pages}
    with sync_playwright() as playwright:
        for _ in range(rounds):
            for page in pages:
                browser = playwright.chromium.launch(
                    executable_path=CHROMIUM, args=["--no-sandbox"]
                )
                drawings[page].append(opened(browser, page))
                browser.close()
    return drawings


def opened(browser: Any, page: Path) -> Drawing:
    """One page in a fresh tab of a browser that was just started."""
    tab = browser.new_page(viewport={"width": 1440, "height": 1000})
    session = browser.new_browser_cdp_session()
    before = _processor_seconds(session)
    tab.goto(page.as_uri())
    tab.wait_for_selector(DRAWN)
    elapsed = tab.evaluate(FRAME)
    return Drawing(elapsed=elapsed, processor=_processor_seconds(session) - before)


def _processor_seconds(session: Any) -> float:
    """What all processes of the browser have spent so far."""
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    return float(sum(process["cpuTime"] for process in processes))


def lines(drawings: Mapping[Path, list[Drawing]]) -> Iterator[str]:
    """Markdown."""
    yield "| page | MB | drawn after, s: median (range) | processor, s |"
    yield "| --- | ---: | ---: | ---: |"
    for page, own in drawings.items():
        elapsed = sorted(drawing.elapsed for drawing in own)
        processor = statistics.median(drawing.processor for drawing in own)
        drawn = f"{statistics.median(elapsed):.2f} ({elapsed[0]:.2f} to {elapsed[-1]:.2f})"
        yield f"| {page.stem} | {page.stat().st_size / 1e6:.1f} | {drawn} | {processor:.2f} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.report_page")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as scratch:
        own = Path(scratch) / "this version.html"
        own.write_text(html.render(report_of(options.rows)))
        pages = [own, *(page.resolve() for page in options.pages)]
        for line in lines(interleaved(pages, options.rounds)):
            print(line)


if __name__ == "__main__":
    main()
