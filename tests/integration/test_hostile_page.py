"""A hostile run's page in a real browser: none of its text runs, and no request leaves."""

from dataclasses import replace

import pytest

from jobs.anatomy_record import Anatomy
from jobs.flags import Flag, FlagKind
from jobs.record import Outcome, TrialRecord
from orchestrator.reporting.publish import publish
from tests.support.records import H200, make_anatomy, make_record, write_run
from tests.support.report_pages import DRAWN, opened

CANARY = "document.documentElement.dataset.canary='sang'"
HOSTILE = (
    "javascript:alert(1)"
    f"\"'></script></style><script>{CANARY}</script>"
    f"<img src=https://canary.example/x onerror={CANARY}>"
    f"x}}<img src=x onerror={CANARY}>@{{y"
    "$$\\text{x}$$ \\(y\\) @{index} $color[hex]:x {{7*7}} ${7*7}"
    "\u202eevil\x1b[31m\u2028`${alert(1)}`",
    "__proto__",
)
"""Texts that would run, load or reorder something where they are read as more than text."""


def hostile_anatomy(text: str) -> Anatomy:
    """An anatomy whose classes, operations, phases and rules have a hostile name."""
    anatomy = make_anatomy(2.0)
    entries = tuple(replace(entry, name=f"{entry.name} {text}") for entry in anatomy.entries)
    timeline = anatomy.timeline
    held = {f"{name} {text}": sizes for name, sizes in timeline.held.items()}
    phases = tuple((text, *phase[1:]) for phase in timeline.phases)
    return replace(anatomy, entries=entries, timeline=replace(timeline, held=held, phases=phases))


def hostile_records(text: str) -> list[TrialRecord]:
    """Records that carry a text wherever a run has one."""
    environment = {**H200, "gpu_model": text, "driver": text}
    records = []
    for size in (1, 2, 4):
        records.append(
            make_record(
                micro_batch=size,
                memory_mib=1000 * size,
                speed=10.0 * size,
                optimizer=f"{text}{size % 2}",
                environment=environment,
                measurements={"optimizer_class": text, "attention_kernel": text},
                recipe={text: text} if size == 4 else {},
                flags=[Flag(FlagKind.UNSTABLE, 0.3)],
                anatomy=hostile_anatomy(text),
            )
        )
    records.append(
        make_record(
            micro_batch=8,
            optimizer=text,
            outcome=Outcome.FAILED,
            reason=text,
            environment=environment,
        )
    )
    return records


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_run_stays_text(browser, tmp_path, text):
    publish(write_run(tmp_path, hostile_records(text), name=text, command=text, budgets=[2**30]))
    with opened(browser, tmp_path / "report.html") as page:
        # Everything in the page that shows a text of the run.
        page.locator("#filters summary").click()
        for name in ("colour", "marker"):
            for option in page.locator(f"#{name} option").all():
                page.select_option(f"#{name}", option.get_attribute("value"))
        page.select_option("#recipe", "mixed")
        page.select_option("#rows", "all")
        page.locator("#table tbody button").first.click()
        page.locator("#picked .timeline").hover()
        page.wait_for_selector("#picked .tip", state="visible")
        page.get_by_role("button", name="Pin, to compare").click()
        page.locator("#table tbody button").last.click()
        page.wait_for_selector("#pinned", state="visible")
        page.locator("#line-chart").hover()
        for part in ("operations", "modules", "step"):
            page.select_option("#part", part)
        assert page.evaluate("document.documentElement.dataset.canary") is None
        assert page.evaluate("document.querySelectorAll('main img, iframe, object').length") == 0
        assert page.locator("script").count() == 2  # data and module


def test_policy_stops_a_script_that_would_get_into_the_page(browser, tmp_path):
    """Defence in depth: even markup that escaped every other care could not run or load."""
    publish(write_run(tmp_path, [make_record()]))
    path = tmp_path / "report.html"
    smuggled = (
        f"<script>{CANARY}</script><img src=x onerror={CANARY}>"
        '<link rel=stylesheet href="https://canary.example/x.css">'
        '<iframe src="https://canary.example/"></iframe><base href="https://canary.example/">'
    )
    path.write_text(path.read_text().replace("<main>", f"<main>{smuggled}"))
    page = browser.new_page()
    asked: list[str] = []
    blocked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: blocked.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector(DRAWN)
    assert page.evaluate("document.documentElement.dataset.canary") is None
    assert {url for url in asked if "canary" in url} <= set(blocked)
    assert page.evaluate("document.baseURI") == path.as_uri()
    page.close()
