"""The pages: every file of a run, hostile strings harmless, the same twice, readable in a plain log."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console

from jobs.record import Outcome
from orchestrator import report
from orchestrator.reporting import cells
from orchestrator.reporting.frontier_plot import encodings
from orchestrator.reporting.html.chart_data import chart_data
from orchestrator.reporting.html.page import queries, script_json
from orchestrator.reporting.label_layout import MOST, Label, key_points, place
from orchestrator.reporting.publish import publish, summarize_folder
from orchestrator.reporting.terminal import print_summary
from orchestrator.storage.tables.anatomy_rows import sizes_of
from orchestrator.units import change, duration, error, memory, number
from tests.support.records import GUIDE_CONFIG, H200, make_grid, make_guide, make_record, write_run

HOSTILE = "</script><script>alert('x')</script> | a `b` <img src=x onerror=alert(1)> $x_1$"
TABLES = {"trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"}
FILES = TABLES | {"report.md", "report.html", "frontier.png"}


def page_without_library(page: str) -> str:
    """The HTML without the chart library, whose own text is full of everything."""
    return "".join(re.split(r"(?s)<script[^>]*>.*?</script>", page))


def printed(folder: Path) -> str:
    output = io.StringIO()
    print_summary(summarize_folder(folder), Console(file=output))
    return output.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    skipped = make_record(
        outcome=Outcome.SKIPPED,
        reason="the time budget ended",
        rule="time_budget",
        precision="fp32",
    )
    records = [*make_grid(), skipped]
    return write_run(
        tmp_path,
        records,
        budgets=[2**33, 3 * 2**33],
        baseline={"precision": "fp32", "micro_batch": 4},
    )


def test_publishing_writes_every_file_and_says_so(folder: Path) -> None:
    summary = publish(folder)
    assert {path.name for path in summary.files} == FILES
    assert {path.name for path in folder.iterdir()} == FILES | {"records", "run.json"}
    assert summary.counts == {Outcome.OK: 280, Outcome.OUT_OF_MEMORY: 8, Outcome.SKIPPED: 1}
    assert summary.best is not None
    assert summary.cohorts[0].memory_column == "device_peak_bytes"


def test_publishing_twice_gives_the_same_bytes(folder: Path) -> None:
    publish(folder)
    first = {name: (folder / name).read_bytes() for name in FILES}
    publish(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == first


def test_a_table_alone_gives_the_same_report(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    publish(folder)
    alone = tmp_path_factory.mktemp("alone")
    (alone / "trials.parquet").write_bytes((folder / "trials.parquet").read_bytes())
    publish(alone)
    for name in ("report.md", "report.html", "frontier.parquet"):
        assert (alone / name).read_bytes() == (folder / name).read_bytes()


def test_hostile_strings_stay_strings(tmp_path: Path) -> None:
    records = [
        make_record(
            precision=HOSTILE,
            learning_rate=HOSTILE,
            equivalence=HOSTILE,
            measurements={"warnings": [HOSTILE]},
        ),
        make_record(
            precision="bf16",
            learning_rate="1",
            outcome=Outcome.FAILED,
            reason=HOSTILE,
            rule=HOSTILE,
        ),
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
    records = [
        *make_grid(),
        make_record(environment=other, precision="fp32", activations="keep", optimizer="sgd"),
    ]
    data = chart_data(summarize_folder(write_run(tmp_path, records)))
    assert [data["columns"]["cohort"].count(place) for place in (0, 1)] == [280, 1]
    assert [axis["name"] for axis in data["axes"]] == [
        "micro_batch",
        "precision",
        "activations",
        "optimizer",
    ]
    assert data["axes"][0]["values"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [measure["name"] for measure in data["measures"]] == [
        "memory_bytes",
        "samples_per_second",
        "dollars_per_million",
    ]


def test_a_devices_memory_is_taken_apart_where_it_adds_up() -> None:
    row = {
        "model_allocated_bytes": 10,
        "optimizer_state_bytes": 20,
        "peak_allocated_bytes": 100,
        "peak_reserved_bytes": 110,
        "device_peak_bytes": 150,
    }
    assert [*(sizes_of(row) or {}).values()] == [10, 20, 70, 10, 40]
    assert [*(sizes_of({**row, "offload_optimizer_device": "cpu"}) or {}).values()] == [
        10,
        0,
        90,
        10,
        40,
    ]
    assert sizes_of({**row, "peak_allocated_bytes": 25}) is None
    assert sizes_of({**row, "device_peak_bytes": None}) is None


def test_the_pages_queries_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb
    import polars

    summary = publish(folder)
    monkeypatch.chdir(folder)
    snippets = {tool: f"{before}24{after}" for tool, before, after in queries(summary)}
    found = duckdb.sql(snippets["DuckDB"]).fetchall()
    assert len(found) == 10
    best = max(
        p.samples_per_second for p in summary.cohorts[0].points if p.memory_bytes <= 24 * 2**30
    )
    assert best in found[0]
    table = eval(snippets["Polars"].split("\n\n", 1)[1], {"pl": polars})
    assert table["samples_per_second"].to_list()[0] == best


def test_the_searchs_account_is_part_of_every_page(tmp_path: Path) -> None:
    search = {"kind": "frontier", "planned": 9, "measured": 4, "skipped": {"dominated": 5}}
    publish(write_run(tmp_path, [make_record()], search=search))
    for name in ("report.md", "report.html"):
        assert (
            "earch: frontier measured 4 of 9 trials and left out 5 (5 dominated)."
            in (tmp_path / name).read_text()
        )


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


def test_the_frontier_is_the_baselines_training_and_others_stand_beside_it(folder: Path) -> None:
    summary = publish(folder)
    cohort = summary.cohorts[0]
    assert {point.choices["optimizer"] for point in cohort.front} == {"adamw_torch_fused"}
    assert summary.best is not None
    assert summary.best.choices["optimizer"] == "adamw_torch_fused"
    assert len({point.equivalence for point in cohort.front}) > 5
    assert "sgd" in {point.choices["optimizer"] for point in cohort.across}
    for text in (
        printed(folder),
        (folder / "report.md").read_text(),
        (folder / "report.html").read_text(),
    ):
        assert "† 230" in text
        assert "† trains differently: optimizer=sgd" in text
    frontier_part, budget_part = printed(folder).split("Best in each budget")
    assert "sgd" not in frontier_part
    assert budget_part.count("† ") == 2  # the faster one in 8 GiB, and the note


def test_nothing_is_marked_where_all_train_alike(tmp_path: Path) -> None:
    text = printed(
        write_run(tmp_path, [make_record(micro_batch=n, memory_mib=n, speed=n) for n in (1, 2, 4)])
    )
    assert "†" not in text
    assert "±" not in text
    assert "Trains as" not in text


def test_a_training_that_is_not_the_baselines_is_not_called_so(tmp_path: Path) -> None:
    sgd = make_record(optimizer="sgd", equivalence="effective_batch=4 · optimizer=sgd")
    failed = make_record(
        optimizer="adamw_torch_fused",
        equivalence="effective_batch=4",
        outcome=Outcome.OUT_OF_MEMORY,
    )
    text = printed(write_run(tmp_path, [sgd, failed]))
    assert "Nothing that trains as the baseline ended ok; this is within optimizer=sgd." in text


def test_the_chart_knows_trainings_and_batches(folder: Path) -> None:
    data = chart_data(summarize_folder(folder))
    (cohort,) = data["cohorts"]
    assert cohort["trainings"][cohort["ranked"]] == "as the baseline"
    assert set(cohort["trainings"]) == {
        "as the baseline",
        *(f"optimizer={name}" for name in ("sgd", "adafactor", "adamw_bnb_8bit")),
    }
    assert sorted(set(data["columns"]["batch"])) == [1, 2, 4, 8, 16, 32, 64, 128, 256]


def test_rows_whose_losses_are_not_their_references_are_marked(folder: Path) -> None:
    cohort = summarize_folder(folder).cohorts[0]
    doubted = replace(
        cohort.front[-1], warnings=("trains differently: mean loss 4.0 times its reference's",)
    )
    assert cells.speed(doubted, cohort) == f"≠ {cells.speed(cohort.front[-1], cohort)}"
    assert cells.frontier_notes(replace(cohort, fronts={cohort.training: (doubted,)})) == [
        "≠ its losses are not its reference's"
    ]


def test_host_bound_points_are_marked_and_speeds_have_their_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, make_guide(), config=GUIDE_CONFIG, budgets=[2**33])
    publish(folder)
    for text in (printed(folder), (folder / "report.md").read_text()):
        assert "h 15.0" in text
        assert "h 76.0" not in text
        assert "h host-bound: " in text
        assert "±3.4 %" in text


def test_the_guides_table_stands_beside_its_published_figures(tmp_path: Path) -> None:
    folder = write_run(tmp_path, make_guide(), config=GUIDE_CONFIG)
    publish(folder)
    lines = (folder / "report.md").read_text().split("### As the guide measures")[1].splitlines()
    rows = [line for line in lines if line.startswith("| batch")][:12]
    assert "57.82 | 8.86 | 14,949" in rows[0]
    assert "| 17.6 | 29.0 | 9,751 | 34.0 | 7,200 | 7,264 | 7,800 |" in rows[0]
    assert [("49.46 | 10.35 | 5,363" in row) for row in rows[9:]] == [True, True, False]
    assert "accelerate" in rows[11]
    assert "As the guide measures" in page_without_library((folder / "report.html").read_text())


@pytest.mark.parametrize(
    ("change", "table", "figures"),
    [
        ({}, True, True),
        ({"measure": {"steps": 10}}, False, False),
        ({"data": {"synthetic": {"sequence_length": 128, "samples": 512}}}, True, False),
        ({"model": {"architecture": "llama"}}, True, False),
    ],
)
def test_the_guides_figures_are_shown_of_its_own_experiment_only(
    tmp_path: Path, change: dict[str, Any], table: bool, figures: bool
) -> None:
    folder = write_run(tmp_path, make_guide(), config={**GUIDE_CONFIG, **change})
    publish(folder)
    text = (folder / "report.md").read_text()
    assert ("As the guide measures" in text) is table
    assert ("14,949" in text) is figures


def test_a_pictures_colours_are_precision_and_its_markers_activations(
    folder: Path, tmp_path: Path
) -> None:
    summary = summarize_folder(folder)
    assert encodings(summary, summary.cohorts[0]) == ("precision", "activations")
    few = summarize_folder(
        write_run(
            tmp_path / "few",
            [make_record(optimizer=name, micro_batch=n) for n in (1, 2) for name in ("a", "b")],
        )
    )
    assert encodings(few, few.cohorts[0]) == ("optimizer", "micro_batch")


def test_labels_of_a_picture_never_cover_each_other() -> None:
    figure = Figure(figsize=(6, 4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    labels = [
        Label(x=5 + n / 10, y=5, name="batch 64 · bf16 · checkpoint", figures="38.9 GiB, 312/s")
        for n in range(30)
    ]
    place(axes, labels, [(5, 6)])
    boxes = [text.get_window_extent() for text in axes.texts]
    assert 3 <= len(boxes) < 30
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    frame = axes.get_window_extent()
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_the_key_points_are_few_and_hold_the_ends(folder: Path) -> None:
    front = summarize_folder(folder).cohorts[0].front
    chosen = key_points(front, [front[3]])
    assert chosen[:3] == [front[-1], front[0], front[3]]
    assert len(chosen) <= MOST
    assert key_points(front[:1], ()) == [front[0]]


def test_the_verb_renders_and_prints(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(folder), "--open-nothing"]) == 0
    assert "report.html" in "".join(capsys.readouterr().out.split())  # long paths are wrapped


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib\nfrom orchestrator import report\n"
        "with contextlib.suppress(SystemExit): report.main(['--help'])\n"
        "print(sorted({'pyarrow', 'torch', 'rich', 'bokeh', 'matplotlib', 'jinja2', 'numpy'} & set(sys.modules)))"
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
    assert [change(ratio) for ratio in (0.52, 1.0, 1.12, 3.2)] == [
        "−48 %",
        "±0 %",
        "+12 %",
        "×3.20",
    ]
    assert [error(value) for value in (None, float("inf"), 0.0042, 0.0998, 0.3)] == [
        "",
        "",
        "±0.4 %",
        "±10 %",
        "±30 %",
    ]
    assert [duration(seconds) for seconds in (4.2, 200, 7500)] == [
        "4.2 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
