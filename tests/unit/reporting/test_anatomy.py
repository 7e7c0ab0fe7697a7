"""Anatomies from records to tables and pages: nothing is lost, follow-ups tell of what they follow."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.anatomy_record import Anatomy, Entry, Timeline
from jobs.record import TrialRecord
from jobs.spec import FollowUp
from orchestrator.reporting import publish as publishing
from orchestrator.reporting.publish import publish
from orchestrator.storage.record_reader import read_record
from orchestrator.storage.run_metadata import read_records
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.anatomy_rows import PARTS, is_sound, tellers
from tests.support.records import make_anatomy, make_record, write_run

OWN = make_record(micro_batch=4, speed=40.0, anatomy=make_anatomy())
SEARCHS = make_record(micro_batch=8, memory_mib=2000, speed=80.0)


def follow_up(record: TrialRecord) -> TrialRecord:
    """The record's trial, run again to be taken apart."""
    again = FollowUp(follows=record.trial_id, purpose="anatomy")
    return replace(record, spec=replace(record.spec, follow_up=again), anatomy=make_anatomy(2.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, [OWN, SEARCHS, follow_up(SEARCHS)])


def test_an_anatomy_survives_record_and_table(folder: Path) -> None:
    publish(folder)
    wanted = {record.trial_id: record.anatomy for record in (OWN, follow_up(SEARCHS))}
    assert parquet.anatomies_of(folder) == wanted
    assert parquet.read_anatomies(folder, parquet.trials_taken_apart(folder)) == wanted
    parts = parquet.anatomy_table(read_records(folder))["part"].unique().to_pylist()
    assert set(parts) == set(PARTS)


def test_pages_take_a_point_apart_by_its_own_anatomy_or_its_follow_ups(folder: Path) -> None:
    summary = publish(folder)
    assert summary.anatomies.keys() == {OWN.trial_id, SEARCHS.trial_id}
    assert summary.anatomies[SEARCHS.trial_id].timeline == make_anatomy(2.0).timeline
    idle = summary.anatomies[SEARCHS.trial_id].values("operations")["idle"]
    assert idle == pytest.approx(8 / 80 - 0.064), (
        "of the search's steps, not of the few that follow-ups count"
    )
    markdown = (folder / "report.md").read_text()
    assert "| batch 8 | 1.17 GiB | 400 MiB | 64 MiB | 536 MiB |" in markdown
    assert "| batch 8 | 75.0 % | 15.6 % | 9.4 % | 36.0 % | 3.00 | 35.0 % | 1 of 2 |" in markdown
    assert "| batch 8 | 80.0 % | 20.0 % |" in markdown, "modules"
    assert "| Data Movement Is All You Need (V100) | 61.0 % | 25.5 % | 13.5 % |" in markdown
    page = re.search(r'id="data">(.*?)</script>', (folder / "report.html").read_text())
    assert page is not None
    data = json.loads(page[1])
    place = str(data["columns"]["trial"].index(SEARCHS.trial_id))
    assert data["anatomies"][place]["timeline"]["mib"]["saved activations"] == [0, 1200, 0]


def test_a_run_that_took_nothing_apart_says_nothing_of_it(tmp_path: Path) -> None:
    publish(write_run(tmp_path, [SEARCHS]))
    assert "Where memory and time go" not in (tmp_path / "report.md").read_text()
    assert parquet.anatomies_of(tmp_path) == {}


def test_a_page_holds_few_of_many_the_frontiers_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "MOST_ANATOMIES", 2)
    slow = [
        make_record(micro_batch=size, memory_mib=5000 + size, anatomy=make_anatomy())
        for size in range(1, 9)
    ]
    best = make_record(micro_batch=16, memory_mib=900, speed=900.0, anatomy=make_anatomy(3.0))
    summary = publish(write_run(tmp_path, [*slow, best]))
    assert summary.anatomies[best.trial_id].timeline == make_anatomy(3.0).timeline
    assert len(summary.anatomies) == 2


def test_an_anatomy_of_its_own_goes_before_a_follow_ups() -> None:
    rows = [
        {"trial_id": "b2", "purpose": "budget", "follows": "a"},
        {"trial_id": "c", "purpose": "anatomy", "follows": "a"},
    ]
    assert tellers([("a",), ("d", "a")], rows, {"b2", "c", "d"}) == {"a": "c", "d": "d"}
    assert tellers([("a",)], rows, {"a", "c"}) == {"a": "a"}


@pytest.mark.parametrize(
    "foreign",
    [
        {"entries": "none"},
        {"entries": [], "timeline": {"seconds": [0.0], "held": {"weights": [1, 2]}, "phases": []}},
        {"entries": [], "timeline": {"seconds": [0.0], "held": {"weights": [-1]}, "phases": []}},
        {"entries": [{"part": "soul", "name": "x", "value": 1.0, "unit": ""}], "timeline": {}},
    ],
)
def test_a_record_with_a_foreign_anatomy_is_passed_over(
    foreign: dict[str, object], folder: Path
) -> None:
    path = next(path for path in (folder / "records").iterdir() if OWN.trial_id in path.name)
    assert read_record(path) is not None
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "anatomy": {**document["anatomy"], **foreign}}))
    assert read_record(path) is None


def test_figures_that_are_none_are_not_sound() -> None:
    assert is_sound(make_anatomy())
    assert not is_sound(
        Anatomy(entries=(Entry(part="memory", name="weights", value=math.inf, unit="B"),))
    )
    assert not is_sound(Anatomy(timeline=Timeline(seconds=[float("nan")])))
