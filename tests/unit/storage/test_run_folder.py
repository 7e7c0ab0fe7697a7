"""The run folder: atomic records, one driver at a time, torn and foreign files left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.storage.run_folder import RunFolder, RunFolderBusyError
from tests.conftest import build_tiny_spec


def a_record(repeat: int = 0, outcome: Outcome = Outcome.OK) -> TrialRecord:
    """A record with a little of everything."""
    return TrialRecord(
        spec=build_tiny_spec(repeat=repeat),
        outcome=outcome,
        measurements={
            "peak_allocated_bytes": 2**40 + 1,
            "samples_per_second": 0.1,
            "warnings": ["unstable: …"],
        },
        steps={"loss": [1.5, 0.1 + 0.2]},
        environment={"gpu_model": ""},
        started_at=1.25,
    )


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """An empty run folder, made by locking it."""
    folder = RunFolder(tmp_path / "runs" / "one")
    with folder.locked():
        return folder


def names(folder: RunFolder) -> list[str]:
    """Files among the records."""
    return sorted(path.name for path in (folder.path / "records").iterdir())


def test_records_come_back_as_they_were_written(folder: RunFolder) -> None:
    records = [a_record(0), a_record(1)]
    for record in records:
        folder.write(record)
    assert folder.records() == {record.trial_id: record for record in records}
    assert folder.unreadable == []


def test_a_trial_has_one_record_the_last(folder: RunFolder) -> None:
    folder.write(a_record(outcome=Outcome.SKIPPED))
    folder.write(a_record())
    (record,) = folder.records().values()
    assert record.outcome is Outcome.OK
    assert names(folder) == [f"{record.trial_id}.json"]


def test_a_record_can_be_forgotten_twice(folder: RunFolder) -> None:
    record = a_record()
    folder.write(record)
    folder.remove(record.trial_id)
    folder.remove(record.trial_id)
    assert folder.records() == {}


def test_torn_and_foreign_files_are_listed_and_left_alone(folder: RunFolder) -> None:
    record = a_record()
    folder.write(record)
    whole = (folder.path / "records" / f"{record.trial_id}.json").read_bytes()
    strangers = {
        "binary.json": b"\xff\xfe\x00",
        "empty.json": b"",
        "foreign.json": b'{"somebody": "else\'s"}',
        "list.json": b"[1, 2]",
        "number.json": b"7",
        "torn.json": whole[: len(whole) // 2],
        "unknown_outcome.json": whole.replace(b'"ok"', b'"splendid"'),
        "unknown_field.json": json.dumps({**json.loads(whole), "mood": "good"}).encode(),
    }
    for name, content in strangers.items():
        (folder.path / "records" / name).write_bytes(content)
    assert list(folder.records()) == [record.trial_id]
    assert [path.name for path in folder.unreadable] == sorted(strangers)
    assert {path.name: path.read_bytes() for path in folder.unreadable} == strangers


def test_a_driver_killed_while_writing_leaves_the_old_record(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = a_record()
    folder.write(old)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.write(a_record(outcome=Outcome.SKIPPED))
    assert folder.records() == {old.trial_id: old}
    assert folder.unreadable == []


def test_one_driver_at_a_time(folder: RunFolder) -> None:
    with (
        folder.locked(),
        pytest.raises(RunFolderBusyError, match="in use by another"),
        RunFolder(folder.path).locked(),
    ):
        pass
    with folder.locked():
        pass


def test_a_run_exists_once_it_is_described(folder: RunFolder) -> None:
    assert not folder.exists()
    folder.describe({"name": "one"})
    assert folder.exists()
    assert json.loads((folder.path / "run.json").read_text()) == {"name": "one"}
