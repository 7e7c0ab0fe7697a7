"""The lock of a run folder: what happens to its file and folder while a driver holds it."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator.storage.run_folder import (
    RunFolder,
    RunFolderBusyError,
    RunFolderError,
    RunFolderLostError,
)
from tests.conftest import build_tiny_spec

RECORD = TrialRecord(spec=build_tiny_spec(), outcome=Outcome.OK)


def replace_lock(run: Path) -> None:
    (run / "lock").unlink()
    (run / "lock").touch()


def replace_folder(run: Path) -> None:
    shutil.rmtree(run)
    (run / "records").mkdir(parents=True)
    (run / "lock").touch()


@pytest.mark.parametrize(
    "strike",
    [
        lambda run: (run / "lock").unlink(),
        replace_lock,
        shutil.rmtree,
        replace_folder,
        lambda run: run.rename(run.with_name("elsewhere")),
    ],
    ids=["lock deleted", "lock replaced", "deleted", "replaced", "renamed"],
)
def test_lost_folder_is_written_no_more(strike, tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        strike(folder.path)
        before = sorted(tmp_path.rglob("*"))
        assert not folder.is_ours()
        with pytest.raises(RunFolderLostError, match="nothing more is written there"):
            folder.write(RECORD)
        with pytest.raises(RunFolderLostError):
            folder.describe({})
        assert sorted(tmp_path.rglob("*")) == before


def test_second_driver_after_a_deleted_lock_writes_alone(tmp_path):
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    with first.locked():
        (tmp_path / "lock").unlink()
        with second.locked():
            second.write(RECORD)
            with pytest.raises(RunFolderLostError):
                first.write(RECORD)


def test_folder_is_held_once(tmp_path):
    with RunFolder(tmp_path).locked():
        assert RunFolder(tmp_path).in_use()
        with pytest.raises(RunFolderBusyError), RunFolder(tmp_path).locked():
            pass
    assert not RunFolder(tmp_path).in_use()
    with RunFolder(tmp_path).locked():
        pass


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.with_name("elsewhere"))],
    ids=["pipe", "folder", "link"],
)
def test_lock_that_is_no_file_is_a_sentence(make, tmp_path):
    make(tmp_path / "lock")
    signal.alarm(20)  # a pipe would block for ever
    try:
        assert not RunFolder(tmp_path).in_use()
        with (
            pytest.raises(RunFolderError, match="it is no regular file; move it away"),
            RunFolder(tmp_path).locked(),
        ):
            pass
    finally:
        signal.alarm(0)
    assert not (tmp_path / "elsewhere").exists()
