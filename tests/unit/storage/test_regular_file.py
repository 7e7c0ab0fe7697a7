"""Pipes, devices, links and endless files in place of a run's files: named, never waited for."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from orchestrator.storage.layout import LARGEST_BYTES, RECORDS, RUN, written_beside
from orchestrator.storage.record_reader import find_records
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from orchestrator.storage.run_metadata import UnreadableRunError, read_run
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.table_reader import read_steps, read_trials_file
from orchestrator.storage.tables.trial_table import table_of_records
from tests.support.damages import WHOLE

IN_PLACE: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "it is no regular file"),
    "folder": (Path.mkdir, "it is no regular file"),
    "device": (lambda path: path.symlink_to(os.devnull), "it is no regular file"),
    "loop": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    # A file with more bytes than any run's, which takes no room on the disk.
    "sparse": (
        lambda path: (path.touch(), os.truncate(path, LARGEST_BYTES + 1)),
        "268,435,457 bytes, more than any file of a run",
    ),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with its records and run.json."""
    folder = RunFolder(tmp_path / "run")
    (folder.path / RECORDS).mkdir(parents=True)
    folder.describe({"name": "synthetic"})
    for record in WHOLE:
        folder.write(record)
    return folder.path


@pytest.mark.parametrize("kind", IN_PLACE)
def test_run_json_that_is_no_file_is_named(kind, run):
    make, reason = IN_PLACE[kind]
    (run / RUN).unlink()
    make(run / RUN)
    with pytest.raises(UnreadableRunError, match=reason) as error:
        read_run(run)
    assert str(run / RUN) in str(error.value)


@pytest.mark.parametrize("kind", IN_PLACE)
def test_record_that_is_no_file_is_unreadable(kind, run):
    path = run / RECORDS / f"{WHOLE[0].trial_id}.json"
    path.unlink()
    IN_PLACE[kind][0](path)
    found = find_records(run)
    assert found.unreadable == (path,)
    assert len(found.records) == len(WHOLE) - 1


@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "sparse"])
def test_records_that_cannot_be_listed_are_no_empty_run(kind, run):
    (run / RECORDS).rename(run / "elsewhere")
    IN_PLACE[kind][0](run / RECORDS)
    with pytest.raises(UnreadableRunError, match=str(run / RECORDS)):
        find_records(run)
    with pytest.raises(RunFolderError, match="cannot read the earlier records"):
        RunFolder(run).records()
    with (
        pytest.raises(RunFolderError, match=f"{run / RECORDS} is no folder"),
        RunFolder(run).locked(),
    ):
        pass


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop"])
def test_table_that_is_no_file_is_named(kind, run):
    make, reason = IN_PLACE[kind]
    make(run / "trials.parquet")
    make(run / "steps.parquet")
    with pytest.raises(UnreadableRunError, match=reason):
        read_trials_file(run / "trials.parquet")
    with pytest.raises(UnreadableRunError, match=reason):
        read_steps(run, ("trial_id",))


def test_table_behind_a_link_is_read(run, tmp_path):
    parquet.write(parquet.arrow_table(table_of_records(WHOLE)), tmp_path / "kept.parquet")
    (run / "trials.parquet").symlink_to(tmp_path / "kept.parquet")
    assert len(read_trials_file(run / "trials.parquet").rows) == len(WHOLE)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "sparse"])
def test_sweep_replaces_a_run_json_that_is_no_file(kind, run):
    (run / RUN).unlink()
    IN_PLACE[kind][0](run / RUN)
    RunFolder(run).describe({"name": "new"})
    assert read_run(run).name == "new"


def test_file_that_cannot_take_its_place_is_named_by_its_own_name(tmp_path):
    (tmp_path / "trials.parquet").mkdir()
    with (
        pytest.raises(IsADirectoryError) as error,
        written_beside(tmp_path / "trials.parquet") as partial,
    ):
        partial.touch()
    assert error.value.filename == str(tmp_path / "trials.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["trials.parquet"]
