"""How long a browser takes to draw reports: seconds from navigation, and processor time, in headless Chromium.

    python -m tests.benchmarks.report_page [--rows 10000] [--rounds 5] [PAGE ...]

Pages that are named, such as another version's, are opened in turn with this version's page of ``--rows`` invented
rows, so that what else the machine does falls on all. Drawn means that the frame after the chart's last is there.
Processor time is that of all of Chromium's processes, the graphics process included.
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

from orchestrator.analysis.summary import Summary, summarize
from playwright.sync_api import sync_playwright

from orchestrator.reporting.html import page as html
from orchestrator.storage.run_metadata import Run

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRAWN = '#chart[aria-busy="false"]'
FRAME = "new Promise((drawn) => requestAnimationFrame(() => setTimeout(() => drawn(performance.now() / 1000))))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """What one opening took, both in seconds."""

    elapsed: float
    processor: float


def summary_of(rows: int) -> Summary:
    """Invented configurations along two axes of a hundred values each, no two alike in memory or speed."""
    invented = [
        {
            "trial_id": f"{place:012x}",
            "outcome": "ok",
            "environment_id": "one",
            "equivalence": "exact",
            "micro_batch": 1 + place % 100,
            "effective_batch": 1 + place % 100,
            "seed": place // 100,
            "peak_allocated_bytes": 2**30 + 7919 * place % 10_007 * 2**20,
            "samples_per_second": 10.0 + 104_729 * place % 10_009,
            "slot_seconds": 1.0,
        }
        for place in range(rows)
    ]
    return summarize(invented, {"micro_batch": "micro_batch", "seed": "seed"}, Run(name="many"), {})


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


def in_turn(pages: Sequence[Path], rounds: int) -> Mapping[Path, list[Drawing]]:
    """Every page ``rounds`` times, each time in a browser of its own: nothing is cached."""
    found: dict[Path, list[Drawing]] = {page: [] for page in pages}
    with sync_playwright() as started:
        for _ in range(rounds):
            for page in pages:
                browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                found[page].append(opened(browser, page))
                browser.close()
    return found


def lines(found: Mapping[Path, list[Drawing]]) -> Iterator[str]:
    """A Markdown table, the first page the one that the others' ratios are to."""
    yield "| page | MB | drawn after, s: median (least to most) | processor, s | ratio of the medians |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    first = statistics.median(one.elapsed for one in next(iter(found.values())))
    for page, drawings in found.items():
        elapsed = sorted(one.elapsed for one in drawings)
        middle, spent = (
            statistics.median(elapsed),
            statistics.median(one.processor for one in drawings),
        )
        yield (
            f"| {page.stem} | {page.stat().st_size / 1e6:.1f} | {middle:.2f} ({elapsed[0]:.2f} to {elapsed[-1]:.2f}) "
            f"| {spent:.2f} | {middle / first:.2f} |"
        )


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
        own.write_text(html.render(summary_of(options.rows)))
        for line in lines(
            in_turn([own, *(page.resolve() for page in options.pages)], options.rounds)
        ):
            print(line)


if __name__ == "__main__":
    main()
