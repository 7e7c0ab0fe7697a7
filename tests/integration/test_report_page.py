"""The report in a real browser: headless Chromium clicks, drags, filters and hovers."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.flags import Flag, FlagKind
from jobs.record import Outcome
from jobs.spec import MemoryCap, Purpose
from orchestrator import recommend
from orchestrator.cli import EXIT_FAILURE
from orchestrator.reporting.html import page as html
from orchestrator.reporting.publish import publish
from tests.support.large_report import report_of
from tests.support.records import (
    H200,
    follow_up_of,
    make_anatomy,
    make_grid,
    make_record,
    write_run,
)
from tests.support.report_pages import decision, key, opened, ring


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = make_grid()
    other = {**H200, "gpu_model": "Another GPU"}
    energy = {"joules_per_sample": 3.0, "host_peak_resident_bytes": 2**30}
    choices = {"precision": "bf16", "activations": "keep", "optimizer": "adamw_torch_fused"}
    for batch, joules in ((4, 7.0), (8, 5.0), (16, 6.0)):
        records.append(
            make_record(
                micro_batch=batch,
                memory_mib=9000 + batch,
                speed=10.0 * batch,
                environment=other,
                flags=[Flag(FlagKind.UNSTABLE, 0.3)],
                measurements={**energy, "joules_per_sample": joules},
                **choices,
            )
        )
    path = write_run(tmp_path_factory.mktemp("a run's folder"), records, budgets=[2**33, 3 * 2**33])
    publish(path)
    return path


@pytest.fixture
def page(browser: Any, folder: Path) -> Iterator[Any]:
    with opened(browser, folder / "report.html") as page:
        yield page


def test_page_opens_with_the_gain_and_the_smallest_budget_above_the_fold(page):
    assert "× the baseline's throughput" in page.locator("#decision .gain").inner_text()
    assert "Fastest in 8 GiB" in page.locator("#decision").inner_text()
    assert page.locator("#budget").get_attribute("aria-valuetext") == "8 GiB"
    gain = page.locator("#decision .gain").bounding_box()
    chart = page.locator("#chart").bounding_box()
    assert chart["x"] > gain["x"] + gain["width"] - 1
    assert chart["y"] + chart["height"] <= 900


def test_page_compares_nothing_with_a_baseline_that_does_not_fit(browser, tmp_path):
    choices = {"precision": "bf16", "optimizer": "adamw_torch_fused", "micro_batch": 4}
    records = [
        make_record(memory_mib=memory, speed=speed, activations=activations, **choices)
        for activations, memory, speed in (("keep", 12_000, 50.0), ("checkpoint", 6_000, 30.0))
    ]
    path = write_run(tmp_path, records, budgets=[2**33, 2**34])
    publish(path)
    with opened(browser, path / "report.html") as page:
        # As the summary in words: in the smallest budget that the baseline fits, too.
        assert "baseline are the fastest" in page.locator("#decision .gain").inner_text()
        page.get_by_role("button", name="8 GiB", exact=True).click()
        assert page.locator("#decision .gain").inner_text() == "Fits where the baseline does not"


def test_budget_far_above_all_points_leaves_them_the_whole_map(browser, tmp_path):
    records = [make_record(memory_mib=size, speed=size, micro_batch=size) for size in (40, 100)]
    publish(write_run(tmp_path, records, budgets=[72 * 2**20, 2**33]))
    with opened(browser, tmp_path / "report.html") as page:
        page.get_by_role("button", name="any", exact=True).click()
        frame, (x, _) = page.locator("#chart").bounding_box(), ring(page)
        assert x > frame["x"] + 0.7 * frame["width"]
        assert "72 MiB" in page.locator("#chart").inner_text()
        assert "8 GiB" not in page.locator("#chart").inner_text()
        page.get_by_role("button", name="72 MiB", exact=True).click()
        assert "--memory 72MiB " in page.locator("#command").inner_text()


def test_slider_moves_the_decision_and_the_command_agrees(page, capsys):
    answers = []
    for place in (0, 250, 500, 750, 1000):
        page.locator("#budget").fill(str(place))
        words = shlex.split(page.locator("#command").inner_text())
        assert words[:3] == ["python", "-m", "orchestrator.recommend"]
        status = recommend.main([*words[3 : words.index("--export")], "--json"])
        answer = json.loads(capsys.readouterr().out)["best"]
        if status == EXIT_FAILURE:
            assert decision(page) == "Nothing measured fits"
            continue
        assert decision(page) == answer["configuration"]
        assert page.locator("#table tr.chosen").count() == 1
        answers.append(answer["samples_per_second"])
    assert answers == sorted(set(answers))
    assert len(answers) == 4
    assert page.locator("#budget").get_attribute("aria-valuetext") == "any"
    page.get_by_role("button", name="8 GiB", exact=True).click()
    assert "in 8 GiB" in page.locator("#decision").inner_text()
    asides = page.locator("#asides").inner_text()
    assert "instead of 8: " in asides
    gain = "With another training recipe .* more samples per second, .*optimizer=sgd"
    assert re.search(gain, asides)
    assert "<= 8 * 1024" in page.locator("#queries ~ .columns").inner_text()


def test_filters_change_map_and_table_but_never_the_decision(page):
    before = decision(page)
    page.locator("#filters summary").click()
    page.locator("#filter-fields label", has_text="bf16").click()
    assert decision(page) == before
    assert "bf16" not in page.locator("#table tbody").inner_text()
    assert "bf16" not in key(page)
    assert "ignore the filters" in page.locator("#command-notes").inner_text()
    page.get_by_role("button", name="Show everything").click()
    assert "bf16" in key(page)


def test_point_shows_its_configuration_hovered_and_picked(page):
    page.locator("#chart").scroll_into_view_if_needed()
    x, y = ring(page)
    page.mouse.move(x + 3, y - 3)
    name = page.locator("#chart .tip strong").inner_text()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#picked", state="visible")
    assert page.locator("#picked h3").inner_text() == name
    assert page.locator("#table tr.chosen button").inner_text() == name
    page.locator("#table tbody button").first.click()
    picked = page.locator("#picked h3").inner_text()
    assert picked == page.locator("#table tbody button").first.inner_text()
    assert "losses" in page.locator("#picked").inner_text()


def test_controls_choose_axes_objective_and_batch(page):
    page.select_option("#hardware", label=page.locator("#hardware option").nth(1).inner_text())
    page.select_option("#objective", "joules_per_sample")
    assert decision(page).startswith("batch 8×1")
    assert "5.00 J/sample" in page.locator("#decision").inner_text()
    assert page.locator("#map-title").inner_text().lower() == "memory against joules per sample"
    labels = [row.inner_text().split(" · ")[0] for row in page.locator("#table tbody th").all()]
    assert labels == ["batch 4", "batch 8"]
    page.select_option("#batch", "16")
    assert decision(page).startswith("batch 16×1")
    words = page.locator("#command").inner_text()
    assert "--effective-batch 16 --objective joules_per_sample" in words
    page.select_option("#objective", "dollars_per_million")
    page.locator("#price").fill("5.76")
    assert "10.0 per million samples" in page.locator("#decision").inner_text()
    page.select_option("#hardware", "all")
    page.select_option("#objective", "samples_per_second")
    page.select_option("#batch", "")
    assert page.locator("#decision strong").count() == 2
    page.locator("#filters summary").click()
    page.check("[name=log-y]")
    ticks = page.locator("#chart > svg > g > text[text-anchor=end]").all_text_contents()
    assert {"10", "20", "50", "100"} <= set(ticks)


def test_key_and_zoom_stay_while_the_view_stays(page):
    page.locator("#chart").scroll_into_view_if_needed()
    whole = page.locator("#chart > svg > g").inner_html()
    page.get_by_role("button", name="fp32", exact=True).click()
    hidden = page.locator("#chart > svg > g").inner_html()
    assert len(hidden) < len(whole)
    box = page.locator("#chart svg svg").bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 250)
    page.mouse.up()
    zoomed = page.locator("#chart > svg > g").inner_html()
    assert zoomed != hidden
    page.select_option("#rows", "all")
    assert page.locator("#chart > svg > g").inner_html() == zoomed
    page.get_by_role("button", name="Show the whole chart").click()
    page.get_by_role("button", name="fp32", exact=True).click()
    assert page.locator("#chart > svg > g").inner_html() == whole
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save the picture").click()
    assert saved.value.suggested_filename == "chart.png"


def test_other_recipes_can_be_ranked_and_every_row_listed(page):
    page.select_option("#recipe", label="optimizer=sgd")
    assert "sgd" in decision(page)
    page.select_option("#rows", "all")
    listed = page.locator("#table tbody tr")
    assert listed.count() == 50
    page.locator("#more").click()
    assert listed.count() > 50


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1400, "light")])
def test_page_fits_every_screen(browser, folder, width, scheme):
    size = {"width": width, "height": 900}
    path = folder / "report.html"
    with opened(browser, path, viewport=size, color_scheme=scheme) as page:
        page.locator("#table tbody button").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        # Every table shows every column.
        hidden = """[...document.querySelectorAll(".scroll")]
          .filter((own) => own.scrollWidth > own.clientWidth + 1)
          .map((own) => own.getAttribute("aria-label"))"""
        assert page.evaluate(hidden) == []
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is (scheme == "light")
        page.emulate_media(media="print")
        printed = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert printed == "rgb(255, 255, 255)"
        assert page.locator("#chart > svg").bounding_box()["width"] > 100
        assert not page.locator("#filters").is_visible()


def test_page_of_ten_thousand_rows_draws_them_all(browser, tmp_path):
    report = report_of(10_000)
    best_of_all = report.dataset.main.front[-1]
    assert best_of_all is not None
    (tmp_path / "report.html").write_text(html.render(report))
    with opened(browser, tmp_path / "report.html") as page:
        paths = page.locator("#chart svg svg > path").evaluate_all(
            "(all) => all.map((own) => own.getAttribute('d').split('a3 3').length - 1)"
        )
        assert sum(paths) == 2 * 10_000  # two arcs a point
        assert len(key(page)) < 12  # a hundred batch sizes are coloured in bands
        assert decision(page) == report.dataset.pick_label(best_of_all)
        before, _ = ring(page)
        page.locator("#budget").fill("500")
        x, y = ring(page)
        assert x < before
        assert x <= page.locator("#chart .limit").bounding_box()["x"] + 1
        page.mouse.click(x, y)
        assert page.locator("#picked h3").inner_text() in page.locator("#table").inner_text()


def test_cap_checks_decide_what_fits(browser, tmp_path):
    budget, larger = 2 * 2**30, 3 * 2**30
    small = make_record(micro_batch=2, memory_mib=500)
    fast = make_record(memory_mib=900, speed=200.0)
    cap = {"memory_cap": MemoryCap(device_bytes=budget)}
    figures = {**small.measurements, "samples_per_second": 98.0}
    fitted = follow_up_of(small, Purpose.CAP_CHECK, cap, measurements=figures)
    failure = {"outcome": Outcome.OUT_OF_MEMORY, "measurements": {}, "steps": {}}
    failed = follow_up_of(fast, Purpose.CAP_CHECK, cap, **failure)
    write_run(tmp_path, [small, fast, fitted, failed], budgets=[budget, larger])
    publish(tmp_path)
    with opened(browser, tmp_path / "report.html") as page:
        page.get_by_role("button", name="3 GiB", exact=True).click()
        assert decision(page) == "batch 4×1"
        assert "Fits by its uncapped peak" in page.locator("#asides").inner_text()
        page.get_by_role("button", name="2 GiB", exact=True).click()
        assert decision(page) == "batch 2×1"
        asides = page.locator("#asides").inner_text()
        assert "Verified under a memory cap of 2 GiB: 98.0 samples/s" in asides


def test_profiled_configurations_have_bars_and_a_timeline(browser, tmp_path):
    profiled = [
        make_record(micro_batch=n, memory_mib=n, speed=n, anatomy=make_anatomy(n)) for n in (1, 2)
    ]
    plain = make_record(micro_batch=4, memory_mib=4000, speed=4.0)
    publish(write_run(tmp_path, [*profiled, plain]))
    with opened(browser, tmp_path / "report.html") as page:
        rows = page.locator("#anatomy-rows tr")
        assert rows.count() == 2
        assert "saved activations 1.17 GiB" in rows.last.inner_text()
        page.locator("#part").select_option("operations")
        assert "tensor contractions 48.0 ms" in rows.last.inner_text()
        rows.last.get_by_role("button").click()
        assert key(page, "#picked .timeline") == ["weights", "saved activations"]
        page.locator("#picked .timeline").hover()
        page.wait_for_selector("#picked .tip >> text=saved activations")
        assert "backward / forward" in page.locator("#picked").inner_text()
        page.locator("#table button", has_text="batch 4").click()
        assert page.locator("#picked .timeline").count() == 0
