"""The pages: every file of a run, hostile strings harmless, the same twice, readable in a plain log."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from jobs.record import Outcome
from orchestrator import report
from orchestrator.results import publish
from orchestrator.results.page.html import chart_data, script_json
from orchestrator.results.page.text import print_summary
from orchestrator.results.publishing import summarize_folder
from orchestrator.results.words import change, duration, memory, number
from tests.unit.records import H200, make_grid, make_record, write_run

HOSTILE = "</script><script>alert('x')</script> | a `b` <img src=x onerror=alert(1)> $x_1$"
FILES = {"trials.parquet", "steps.parquet", "frontier.parquet", "report.md", "report.html", "frontier.png"}


def page_without_library(page: str) -> str:
    """The HTML without the chart library, whose own text is full of everything."""
    return "".join(part for part in re.split(r"(?s)<script>.*?</script>", page))


def printed(folder: Path) -> str:
    output = io.StringIO()
    print_summary(summarize_folder(folder), Console(file=output))
    return output.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skipped = make_record(outcome=Outcome.SKIPPED, reason="the time budget ended", rule="time_budget", precision="fp32")
    records = [*make_grid(), skipped]
    return write_run(tmp_path, records, budgets=[2**33, 3 * 2**33], baseline={"precision": "fp32", "micro_batch": 4})


def test_publishing_writes_every_file_and_says_so(folder: Path) -> None:
    summary = publish(folder)
    assert {path.name for path in summary.files} == FILES
    assert {path.name for path in folder.iterdir()} == FILES | {"records", "run.json"}
    assert summary.counts == {Outcome.OK: 280, Outcome.OUT_OF_MEMORY: 8, Outcome.SKIPPED: 1}
    assert summary.best is not None
    assert summary.cohorts[0].memory_column == "device_used_bytes"


def test_publishing_twice_gives_the_same_bytes(folder: Path) -> None:
    publish(folder)
    first = {name: (folder / name).read_bytes() for name in FILES}
    publish(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == first


def test_a_table_alone_gives_the_same_report(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    publish(folder)
    alone = tmp_path_factory.mktemp("alone")
    (alone / "trials.parquet").write_bytes((folder / "trials.parquet").read_bytes())
    publish(alone)
    for name in ("report.md", "report.html", "frontier.parquet"):
        assert (alone / name).read_bytes() == (folder / name).read_bytes()


def test_hostile_strings_stay_strings(tmp_path: Path) -> None:
    records = [
        make_record(
            precision=HOSTILE, learning_rate=HOSTILE, equivalence=HOSTILE, measurements={"warnings": [HOSTILE]}
        ),
        make_record(precision="bf16", learning_rate="1", outcome=Outcome.FAILED, reason=HOSTILE, rule=HOSTILE),
    ]
    environment = {**H200, "cpu_model": HOSTILE}
    records.append(make_record(precision="fp16", learning_rate=HOSTILE, environment=environment))
    publish(write_run(tmp_path, records, name=HOSTILE, command=HOSTILE, config={"x": HOSTILE}))
    page = (tmp_path / "report.html").read_text()
    assert "alert('x')</script>" not in page
    assert "<img" not in page_without_library(page)
    raw = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
    assert raw is not None
    assert json.loads(raw[1])["axes"][1]["values"] == [HOSTILE]
    markdown = (tmp_path / "report.md").read_text()
    tables = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) <= 8 for line in tables)
    assert not any("<img" in line or "<script" in line for line in tables)


def test_the_page_needs_no_network_and_names_its_parts(folder: Path) -> None:
    publish(folder)
    page = page_without_library((folder / "report.html").read_text())
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert page.count("<table") == page.count("<caption")
    assert page.count("<h1") == 1
    assert "the time budget ended" in page


def test_numbers_that_json_does_not_know_become_null() -> None:
    assert (
        script_json({"a": [float("nan"), float("inf"), 1.5, "<&\u2028"]})
        == '{"a":[null,null,1.5,"\\u003c\\u0026\\u2028"]}'
    )


def test_the_chart_holds_every_point_of_every_environment(tmp_path: Path) -> None:
    other = {**H200, "gpu_model": "Another GPU"}
    records = [*make_grid(), make_record(environment=other, precision="fp32", activations="keep", optimizer="sgd")]
    data = chart_data(summarize_folder(write_run(tmp_path, records)))
    assert [len(cohort["memory"]) for cohort in data["cohorts"]] == [280, 1]
    assert [axis["name"] for axis in data["axes"]] == ["micro_batch", "precision", "activations", "optimizer"]
    assert data["axes"][0]["values"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("outcomes", [[], [Outcome.FAILED], [Outcome.OK]])
def test_a_run_with_little_to_tell_is_told(tmp_path: Path, outcomes: list[Outcome]) -> None:
    records = [make_record(outcome=outcome, reason="it broke") for outcome in outcomes]
    if not records:
        assert report.main([str(tmp_path), "--open-nothing"]) == 2
        return
    publish(write_run(tmp_path, records))
    assert "1 trial: 1" in printed(tmp_path)


def test_the_printed_end_reads_well_in_a_plain_log(folder: Path) -> None:
    text = printed(folder)
    assert max(map(len, text.splitlines())) < 100
    assert "\x1b" not in text
    for word in ("Frontier", "Best in each budget", "8 out_of_memory", "CUDA out of memory"):
        assert word in text


def test_the_verb_renders_and_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(folder), "--open-nothing"]) == 0
    assert "report.html" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib\nfrom orchestrator import report\n"
        "with contextlib.suppress(SystemExit): report.main(['--help'])\n"
        "print(sorted({'pyarrow', 'torch', 'rich', 'plotly', 'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_figures_are_written_for_people() -> None:
    assert [memory(size) for size in (None, 5, 3 * 2**29, 24 * 2**30, 312.4 * 2**20)] == [
        "–",
        "5 B",
        "1.50 GiB",
        "24 GiB",
        "312 MiB",
    ]
    assert [number(value) for value in (None, 0.03456, 1.234, 34.56, 1234.5)] == [
        "–",
        "0.0346",
        "1.23",
        "34.6",
        "1,234",
    ]
    assert [change(ratio) for ratio in (0.52, 1.0, 1.12, 3.2)] == ["−48 %", "±0 %", "+12 %", "×3.20"]
    assert [duration(seconds) for seconds in (4.2, 200, 7500)] == ["4.2 s", "3 min 20 s", "2 h 05 min"]
