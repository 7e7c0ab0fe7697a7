"""Views of the report page: its answers on recorded runs, pins, links, lines and colours."""

from pathlib import Path

import pytest

from orchestrator.api import load
from orchestrator.reporting.html import page as html
from orchestrator.reporting.report import Report
from tests.support.recorded_runs import RECORDED
from tests.support.report_pages import opened, texts

BERT = "2026-11-20-bert_large-7xh200-part"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert") / "report.html"
    path.write_text(html.render(Report(dataset=load(RECORDED / BERT).dataset)))
    return path


@pytest.mark.parametrize("width", [390, 1400])
def test_page_names_budgets_and_front_inside_the_chart(browser, bert, width):
    with opened(browser, bert, viewport={"width": width, "height": 844}) as page:
        written = texts(page, "#chart")
        assert {"16 GiB", "40 GiB"} <= set(written)
        assert "batch 16 · bf16" in written
        frame = page.locator("#chart svg svg").bounding_box()
        boxes = [own.bounding_box() for own in page.locator("#chart svg svg text").all()]
        assert all(own["y"] >= frame["y"] for own in boxes)
        assert all(own["x"] >= frame["x"] for own in boxes)


def test_lines_show_throughput_by_micro_batch(browser, bert):
    with opened(browser, bert) as page:
        single = texts(page, "#line-chart")
        assert "bf16 · adamw_torch_fused" in single
        assert "fp32 · adamw_torch_fused · checkpoint" in single
        assert "bf16 · adamw_torch_fused · checkpoint" not in single
        page.select_option("#lines", "best")
        best = texts(page, "#line-chart")
        assert "bf16 · sgd" in best
        assert any(name.endswith("(baseline)") for name in best)


def test_pinned_configurations_are_explained_side_by_side(browser, bert):
    with opened(browser, bert) as page:
        page.locator("#table tbody button").last.click()
        page.get_by_role("button", name="Pin, to compare").click()
        assert not page.locator("#pinned").is_visible()
        page.locator("#table tbody button").first.click()
        pinned = page.locator("#pinned").inner_text()
        assert "samples/s" in pinned
        assert "checkpoint" in pinned
        assert "Time per sample: " in pinned
        assert "Memory at the peak: " in pinned
        page.select_option("#rows", "all")
        page.locator("#table tbody button").nth(40).click()
        assert "orchestrator.explain" in page.locator("#pinned").inner_text()
        page.locator("#pinned").get_by_role("button", name="Unpin").click()
        assert not page.locator("#pinned").is_visible()


def test_link_reopens_the_same_view(browser, bert):
    with opened(browser, bert) as page:
        page.get_by_role("button", name="40 GiB", exact=True).click()
        page.select_option("#batch", "64")
        page.select_option("#objective", "joules_per_sample")
        page.locator("#filters summary").click()
        page.locator("#filter-fields label", has_text="tf32").click()
        page.locator("#table tbody button").first.click()
        page.get_by_role("button", name="Pin, to compare").click()
        page.locator("#table tbody button").last.click()
        shown = ("#decision", "#command", "#table", "#picked", "#pinned", "#map-title")
        before = {place: page.locator(place).inner_text() for place in shown}
        link = page.evaluate("location.hash")
    assert link.startswith("#view&")
    with opened(browser, bert, hash=link) as page:
        assert {place: page.locator(place).inner_text() for place in shown} == before
        assert page.evaluate("location.hash") == link


@pytest.mark.parametrize(
    "hash",
    [
        "#view&budget=-5&batch=77&x=<img>&recipe=99&off=9:9.x&picked=nobody&price=1e999",
        "#view&hardware=__proto__&objective=constructor&budget=NaN&pinned=%00",
        "#table-title",
        "#%%%",
    ],
)
def test_link_with_nonsense_opens_the_usual_view(browser, bert, hash):
    with opened(browser, bert, hash=hash) as page:
        assert "Fastest in 24 GiB" in page.locator("#decision").inner_text()
        assert page.locator("#table tbody tr").count() > 5


def test_link_in_the_open_page_changes_its_view(browser, bert):
    with opened(browser, bert) as page:
        page.evaluate("location.hash = '#view&budget=&batch=256'")
        page.wait_for_selector("#decision >> text=Fastest of all")
        assert page.locator("#batch").input_value() == "256"
