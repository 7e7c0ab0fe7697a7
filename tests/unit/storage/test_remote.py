"""Runs at a URI, through fsspec's in-memory store."""

import uuid
from pathlib import Path

import pytest

from jobs.record import Outcome
from orchestrator import api
from orchestrator.storage.location import Uri, location
from orchestrator.storage.remote import (
    RemoteError,
    _at,
    _needed,
    check_writable,
    download,
    fetched,
    upload,
)
from tests.support.records import make_record, write_run


@pytest.fixture
def uri() -> Uri:
    return Uri(scheme="memory", path=f"bucket/{uuid.uuid4().hex}")


def test_upload_then_download_gives_the_same_records(uri, tmp_path):
    folder = write_run(tmp_path / "run", [make_record(), make_record(micro_batch=8)])
    upload(folder, uri)
    names = download(uri, tmp_path / "copy")
    assert set(names) == {"run.json", *(f"records/{path.name}" for path in _records(folder))}
    for name in names:
        assert (tmp_path / "copy" / name).read_bytes() == (folder / name).read_bytes()


def _records(folder: Path) -> list[Path]:
    return list((folder / "records").iterdir())


def test_upload_leaves_out_the_lock_and_hidden_files(uri, tmp_path):
    folder = write_run(tmp_path / "run", [make_record()])
    (folder / "logs").mkdir()
    (folder / "logs" / "trial.txt").write_text("printed")
    files = [path for path in folder.rglob("*") if path.is_file()]
    (folder / "lock").write_text("held")
    (folder / "records" / ".x.json.partial").write_text("half")
    upload(folder, uri)
    assert _at(uri).names() == {path.relative_to(folder).as_posix() for path in files}


def test_upload_removes_records_that_the_run_dropped(uri, tmp_path):
    folder = write_run(tmp_path / "run", [make_record(), make_record(micro_batch=8)])
    upload(folder, uri)
    dropped = _records(folder)[0]
    dropped.unlink()
    upload(folder, uri)
    assert f"records/{dropped.name}" not in download(uri, tmp_path / "copy")
    assert len(api.load(str(uri)).dataset.rows) == 1


def test_download_keeps_the_record_that_started_later(uri, tmp_path):
    speeds = {"old": (1.0, 100.0), "middle": (2.0, 200.0), "new": (3.0, 300.0)}
    records = {
        name: make_record(speed=speed, started_at=started_at)
        for name, (speed, started_at) in speeds.items()
    }
    upload(write_run(tmp_path / "there", [records["middle"], make_record(micro_batch=8)]), uri)
    for name, speed in (("old", 2.0), ("new", 3.0)):
        folder = write_run(tmp_path / name, [records[name]])
        download(uri, folder)
        rows = api.load(folder).dataset.rows
        measured = {row["micro_batch"]: row["samples_per_second"] for row in rows}
        assert measured == {4: speed, 8: 100.0}


def test_download_replaces_a_skipped_record_by_a_measured_one(uri, tmp_path):
    upload(write_run(tmp_path / "there", [make_record()]), uri)
    here = write_run(tmp_path / "here", [make_record(outcome=Outcome.SKIPPED)])
    download(uri, here)
    (row,) = api.load(here).dataset.rows
    assert row["outcome"] == Outcome.OK


def test_fetched_where_there_is_no_run_raises_file_not_found(uri):
    check_writable(uri)
    with pytest.raises(FileNotFoundError, match=str(uri)):
        fetched(uri)


def test_needed_leaves_out_names_outside_the_folder():
    hostile = {
        "records/../../x.json",
        "../run.json",
        "a/records/x.json",
        "../x.parquet",
        "/x.parquet",
    }
    tables = {"run.json", "trials.parquet"}
    assert _needed(hostile | tables) == tables
    assert _needed(hostile | tables | {"records/x.json"}) == {"run.json", "records/x.json"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sftp://host/run", 'requires "paramiko"'),
        ("abfs://container/run", "Install adlfs"),
        ("nope://a/b", "nope"),
    ],
)
def test_missing_package_is_one_sentence_that_starts_with_the_uri(text, reason, tmp_path):
    uri = location(text)
    assert isinstance(uri, Uri)
    with pytest.raises(RemoteError, match=reason) as caught:
        download(uri, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{text}: ")
    assert "\n" not in message
