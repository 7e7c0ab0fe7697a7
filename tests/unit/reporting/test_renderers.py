"""A section written once appears in the terminal, in Markdown, in JSON and on the page."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.analysis.dataset import Dataset, EnvironmentResults, load_dataset
from orchestrator.reporting import markdown
from orchestrator.reporting.content import Column, Content, Format, ReportSection, Table
from orchestrator.reporting.html import page
from orchestrator.reporting.json_output import to_json
from orchestrator.reporting.report import Report
from orchestrator.reporting.terminal.summary import print_summary
from tests.support.records import H200, make_record, write_run

COLUMNS = (
    Column(key="name", heading="name"),
    Column(key="size", heading="size", format=Format.MEMORY),
)
ROWS = tuple({"name": f"row-{place}", "size": place * 2**30} for place in range(1, 10))


def content(title: str, *, is_curve: bool = False) -> Content:
    table = Table(columns=COLUMNS, rows=ROWS, is_curve=is_curve)
    return Content(title=title, text=("Above it.",), tables=(table,), notes=("Below it.",))


def of_the_run(dataset: Dataset) -> Content:
    return content("Of the run", is_curve=True)


def of_an_environment(dataset: Dataset, results: EnvironmentResults) -> Content:
    return content("Of an environment")


def nothing(dataset: Dataset) -> None:
    return None


SECTIONS = (
    ReportSection(name="of_the_run", make=of_the_run, terminal_rows=3),
    ReportSection(
        name="of_an_environment", make=of_an_environment, of_environments=True, terminal_rows=3
    ),
    ReportSection(name="nothing", make=nothing, terminal_rows=3),
    ReportSection(name="long", make=lambda _: content("Too long for a terminal")),
)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    other = {**H200, "gpu_model": "Another GPU"}
    records = [make_record(), make_record(micro_batch=8, environment=other)]
    return Report(dataset=load_dataset(write_run(tmp_path, records)), sections=SECTIONS)


def printed(report: Report) -> str:
    output = io.StringIO()
    print_summary(report, Console(file=output))
    return output.getvalue()


def test_terminal_shows_sections_as_far_as_there_is_room(report):
    text = printed(report)
    of_the_run, first, second = text.split("Of ")[1:]
    assert "Of an environment on NVIDIA H200" in text
    assert "Of an environment on Another GPU" in text
    listed = [
        {name for name in ("row-1", "row-3", "row-9") if name in own} for own in (of_the_run, first)
    ]
    assert listed == [{"row-3", "row-9"}, {"row-1", "row-3"}]
    assert "6 more rows in the report" in second
    assert "Too long" not in text


def test_markdown_holds_every_section_whole(report):
    text = markdown.render(report)
    assert "## Of the run" in text
    assert text.count("### Of an environment") == 2
    assert "## NVIDIA H200" in text
    assert text.count("| row-9 | 9 GiB |") == 4
    assert text.count("Above it.") == text.count("Below it.") == 4


def test_json_holds_raw_values_under_the_sections_name(report):
    document = to_json(report)
    assert document["of_the_run"]["rows"][0] == {"name": "row-1", "size": 2**30}
    notes = [own["of_an_environment"]["notes"] for own in document["environments"]]
    assert notes == [["Below it."], ["Below it."]]
    assert "nothing" not in document


def test_page_shows_and_links_every_section(report):
    html = page.render(report)
    assert '<h2 id="of_the_run">Of the run</h2>' in html
    assert '<a href="#of_the_run">Of the run</a>' in html
    assert '<h2 id="of_an_environment-2">Of an environment on Another GPU</h2>' in html
    assert html.count('<td class="n">9 GiB</td>') == 4
    assert html.count("<table") == html.count("<caption")
