"""Publishing: every file of a run, foreign strings harmless, the same bytes twice."""

import errno
import json
import os
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.flags import LOSS, Flag, FlagKind
from jobs.record import Outcome
from orchestrator.reporting.publish import publish
from tests.support.records import H200, make_grid, make_record, write_run

HOSTILE = "</script><script>alert('x')</script> | a `b` <img src=x onerror=alert(1)> $x_1$"
TABLES = {"trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"}
FILES = TABLES | {"report.md", "report.html", "frontier.png"}


def without_scripts(page: str) -> str:
    """The HTML without scripts: the chart library holds every kind of text."""
    return "".join(re.split(r"(?s)<script[^>]*>.*?</script>", page))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    reason = "the time budget ended"
    skipped = make_record(
        outcome=Outcome.SKIPPED, reason=reason, rule="time_budget", precision="fp32"
    )
    budgets = [2**33, 3 * 2**33]
    baseline = {"precision": "fp32", "micro_batch": 4}
    return write_run(tmp_path, [*make_grid(), skipped], budgets=budgets, baseline=baseline)


def test_publish_writes_every_file_and_names_it(folder):
    report = publish(folder)
    assert {path.name for path in report.files} == FILES
    assert {path.name for path in folder.iterdir()} == FILES | {"records", "run.json"}
    assert report.outcomes == {Outcome.OK: 280, Outcome.OUT_OF_MEMORY: 8, Outcome.SKIPPED: 1}


def test_publish_twice_writes_the_same_bytes(folder):
    publish(folder)
    first = {name: (folder / name).read_bytes() for name in FILES}
    publish(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == first


def test_publish_from_tables_alone_writes_the_same_report(folder, tmp_path_factory):
    publish(folder)
    alone = tmp_path_factory.mktemp("alone")
    for name in ("trials.parquet", "steps.parquet"):
        (alone / name).write_bytes((folder / name).read_bytes())
    publish(alone)
    for name in ("report.md", "report.html", "frontier.parquet", "frontier.png"):
        assert (alone / name).read_bytes() == (folder / name).read_bytes(), name


def test_publish_frontier_table_holds_the_fronts_of_equal_training(folder):
    dataset = publish(folder).dataset
    rows = pq.read_table(folder / "frontier.parquet").to_pylist()
    assert {(row["training_recipe"], row["effective_batch"]) for row in rows} == {
        (row["training_recipe"], row["effective_batch"])
        for row in dataset.rows
        if row["outcome"] == "ok"
    }
    on_front = {row["trial_id"] for row in rows if row["on_frontier"]}
    assert on_front == {own.trial_ids[0] for front in dataset.main.fronts.values() for own in front}
    assert {row["trial_id"] for row in rows if row["across_recipes"]} == {
        own.trial_ids[0] for own in dataset.main.front_across_recipes
    }


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


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.OK])
def test_publish_with_a_single_trial_writes_pages(tmp_path, outcome):
    report = publish(write_run(tmp_path, [make_record(outcome=outcome, reason="it broke")]))
    assert report.headline.startswith(f"1 trial: 1 {outcome}")


@pytest.mark.parametrize("unsound", [1, 2])
@pytest.mark.parametrize("kind", sorted(LOSS))
def test_publish_of_wrong_trainings_writes_every_file(kind, unsound, tmp_path):
    records = [make_record(micro_batch=size, flags=[Flag(kind)]) for size in range(unsound)]
    others = [make_record(micro_batch=size) for size in range(unsound, 2)]
    report = publish(write_run(tmp_path, [*records, *others], budgets=[2**33]))
    assert report.unwritten == ()
    assert {path.name for path in report.files} == FILES


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


def test_publish_on_a_full_disk_still_has_the_figures(folder, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("orchestrator.storage.layout.written_beside", full)
    monkeypatch.setattr("orchestrator.storage.tables.parquet.write", full)
    report = publish(folder)
    assert len(report.unwritten) == len(FILES)
    assert report.outcomes[Outcome.OK] == 280


def test_publish_without_records_or_table_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        publish(tmp_path)
