"""Publishing: every file of a run, foreign strings harmless, the same bytes twice."""

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.flags import LOSS, Flag, FlagKind
from jobs.record import Outcome
from orchestrator.reporting.publish import publish
from orchestrator.reporting.report import Report
from tests.support.records import H200, make_grid, make_record, write_run

HOSTILE = "</script><script>alert('x')</script> | a `b` <img src=x onerror=alert(1)> $x_1$"
TABLES = {"trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"}
FILES = TABLES | {"report.md", "report.html", "frontier.png"}


def without_scripts(page: str) -> str:
    """The HTML without scripts: the chart library holds every kind of text."""
    return "".join(re.split(r"(?s)<script[^>]*>.*?</script>", page))


def written(folder: Path) -> Path:
    reason = "the time budget ended"
    skipped = make_record(
        outcome=Outcome.SKIPPED, reason=reason, rule="time_budget", precision="fp32"
    )
    budgets = [2**33, 3 * 2**33]
    baseline = {"precision": "fp32", "micro_batch": 4}
    return write_run(folder, [*make_grid(), skipped], budgets=budgets, baseline=baseline)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return publish(written(tmp_path_factory.mktemp("published")))


def test_publish_writes_every_file_and_names_it(published):
    assert {path.name for path in published.files} == FILES
    names = {path.name for path in published.dataset.folder.iterdir()}
    assert names == FILES | {"records", "run.json"}
    expected = {Outcome.OK: 280, Outcome.OUT_OF_MEMORY: 8, Outcome.SKIPPED: 1}
    assert published.outcomes == expected


def test_publish_writes_the_same_bytes_again_and_from_tables_alone(published, tmp_path):
    folder = published.dataset.folder
    first = {name: (folder / name).read_bytes() for name in FILES}
    for name in ("trials.parquet", "steps.parquet"):
        (tmp_path / name).write_bytes(first[name])
    publish(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == first
    publish(tmp_path)
    for name in ("report.md", "report.html", "frontier.parquet", "frontier.png"):
        assert (tmp_path / name).read_bytes() == first[name], name


def test_publish_frontier_table_holds_the_fronts_of_equal_training(published):
    dataset = published.dataset
    rows = pq.read_table(dataset.folder / "frontier.parquet").to_pylist()

    def trainings(listed: Any) -> set[tuple[str, int]]:
        return {(row["training_recipe"], row["effective_batch"]) for row in listed}

    assert trainings(rows) == trainings(row for row in dataset.rows if row["outcome"] == "ok")
    on_front = {row["trial_id"] for row in rows if row["on_frontier"]}
    assert on_front == {own.trial_ids[0] for front in dataset.main.fronts.values() for own in front}
    across = {row["trial_id"] for row in rows if row["across_recipes"]}
    assert across == {own.trial_ids[0] for own in dataset.main.front_across_recipes}


def test_publish_keeps_hostile_strings_strings(tmp_path):
    hostile = make_record(
        precision=HOSTILE,
        learning_rate=HOSTILE,
        recipe={"optimizer": HOSTILE},
        flags=[Flag(FlagKind.UNSTABLE, 0.1)],
    )
    failed = make_record(
        precision="bf16", learning_rate="1", outcome=Outcome.FAILED, reason=HOSTILE, rule=HOSTILE
    )
    environment = {**H200, "cpu_model": HOSTILE}
    elsewhere = make_record(precision="fp16", learning_rate=HOSTILE, environment=environment)
    foreign = {"name": HOSTILE, "command": HOSTILE, "config": {"x": HOSTILE}, "notes": [HOSTILE]}
    costs = {HOSTILE: {HOSTILE: HOSTILE}}
    publish(write_run(tmp_path, [hostile, failed, elsewhere], one_time_costs=costs, **foreign))
    page = (tmp_path / "report.html").read_text()
    assert "alert('x')</script>" not in page
    assert "<img" not in without_scripts(page)
    raw = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
    values = {own["name"]: own["values"] for own in json.loads(raw[1])["encodings"]}
    assert HOSTILE in values["learning_rate"]
    markdown = (tmp_path / "report.md").read_text()
    tables = [line for line in markdown.splitlines() if line.startswith("| ")]
    assert not any("<img" in line or "<script" in line for line in tables)
    assert all(len(re.findall(r"(?<!\\)\|", line)) <= 8 for line in tables)


def test_publish_of_a_run_in_which_nothing_ended_ok_writes_pages(tmp_path):
    report = publish(write_run(tmp_path, [make_record(outcome=Outcome.FAILED, reason="it broke")]))
    assert report.headline.startswith("1 trial: 1 failed")
    assert report.unwritten == ()


@pytest.mark.parametrize(
    ("maker", "page"),
    [("plots.frontier", "frontier.png"), ("markdown", "report.md"), ("html.page", "report.html")],
)
def test_publish_names_a_page_that_cannot_be_made(maker, page, folder, monkeypatch):
    def render(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'x'")

    monkeypatch.setattr(f"orchestrator.reporting.{maker}.render", render)
    report = publish(folder)
    sentence = f"{page} could not be made: ModuleNotFoundError: No module named 'x'"
    assert report.unwritten == (sentence,)
    assert {path.name for path in report.files} == FILES - {page}


def test_publish_without_the_library_of_pictures_makes_all_else(folder, monkeypatch):
    for module in ("publish", "markdown"):
        monkeypatch.setattr(f"orchestrator.reporting.{module}.can_draw", lambda: False)
    report = publish(folder)
    assert report.unwritten == ()
    assert {path.name for path in report.files} == FILES - {"frontier.png"}
    assert "frontier.png" not in (folder / "report.md").read_text()


def test_publish_on_a_full_disk_still_has_the_figures(folder, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("orchestrator.storage.layout.written_beside", full)
    monkeypatch.setattr("orchestrator.storage.tables.parquet.write", full)
    report = publish(folder)
    assert len(report.unwritten) == len(FILES)
    assert report.outcomes[Outcome.OK] == 280


@pytest.mark.parametrize(
    ("kind", "unsound"), [*((kind, 1) for kind in sorted(LOSS)), (FlagKind.LOSS_MISMATCH, 2)]
)
def test_publish_of_wrong_trainings_writes_every_file(kind, unsound, tmp_path):
    flags = [[Flag(kind)]] * unsound + [[]] * (2 - unsound)
    records = [make_record(micro_batch=size, flags=own) for size, own in enumerate(flags)]
    report = publish(write_run(tmp_path, records, budgets=[2**33]))
    assert report.unwritten == ()
    assert {path.name for path in report.files} == FILES
