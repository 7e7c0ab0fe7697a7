"""Sweeps over damaged folders and full disks: nothing intact is repeated, and every trial has one
row.
"""

import contextlib
import errno
import json
from pathlib import Path

import pytest

from jobs.record import Outcome
from jobs.spec import to_json
from orchestrator.running.earlier_records import sort_earlier
from orchestrator.running.run_lock import locked_run_folder
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.storage.record_reader import find_records
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from tests.support.commands import python
from tests.support.damages import WHOLE, damaged
from tests.support.records import ended

SPECS = [record.spec for record in WHOLE]


def run_session(session: Session) -> None:
    """Run every trial of a session; each fails at once."""
    while (spec := session.next_trial()) is not None:
        session.ended(
            ended(spec, Outcome.FAILED, environment=WHOLE[0].environment, started_at=1.8e9)
        )


def resume(folder: Path) -> str:
    """Resume a sweep of ``WHOLE``'s trials; returns why the folder could not be written, or ""."""
    run_folder = RunFolder(folder)
    session = Session(Grid(SPECS), run_folder)
    with run_folder.locked():
        try:
            earlier = sort_earlier(run_folder, lambda spec: spec in SPECS)
            session.reuse(earlier.wanted, [WHOLE[0].environment], resume=True)
            run_session(session)
            session.write_missing_records()
        except RunFolderError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("block", range(4))
def test_resumed_sweep_keeps_intact_records_and_writes_the_rest(block, tmp_path):
    final = {record.trial_id: record for record in WHOLE if record.outcome.is_final}
    planned = sorted(record.trial_id for record in WHOLE)
    for seed in range(25 * block, 25 * block + 25):
        folder = tmp_path / str(seed)
        intact = damaged(folder, seed)
        refusal = resume(folder)
        if refusal:
            # A folder stands where a record belongs: it is named, and left alone.
            assert "Is a directory" in refusal, seed
            continue
        rows = {row.trial_id: row for row in find_records(folder).records}
        assert sorted(rows) == planned, seed
        for trial_id in intact & set(final):
            assert rows[trial_id] == final[trial_id], seed


def test_full_disk_while_writing_leaves_earlier_records_whole(tmp_path):
    folder = tmp_path / "run"
    damaged(folder, 0)
    program = """
import resource, signal, sys
from pathlib import Path
from orchestrator.running.run_lock import locked_run_folder
from tests.support.records import make_record

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with locked_run_folder(Path(sys.argv[1]), resume=True) as folder:
    folder.write(make_record(micro_batch=64))
"""
    before = record_files(folder)
    done = python("-c", program, folder)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert record_files(folder) == before


def record_files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in (folder / "records").iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in paths if not path.is_symlink()}


@pytest.mark.parametrize("disk_recovers", [True, False])
def test_disk_that_fills_up_ends_the_sweep_with_the_rows_that_fit(
    disk_recovers, tmp_path, monkeypatch
):
    run_folder = RunFolder(tmp_path)
    writes = iter(range(100))

    def fsync(file: int) -> None:
        write = next(writes)
        if write == 2 or (write > 2 and not disk_recovers):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    session = Session(Grid(SPECS), run_folder)
    with run_folder.locked():
        run_session(session)
        with pytest.raises(RunFolderError, match="No space left on device; earlier files"):
            session.write_missing_records()
    records = run_folder.records()
    outcomes = [records[spec.trial_id].outcome for spec in SPECS if spec.trial_id in records]
    if disk_recovers:
        assert outcomes == [Outcome.FAILED] * 3 + [Outcome.SKIPPED] * (len(SPECS) - 3)
    else:
        assert outcomes == [Outcome.FAILED] * 2
    assert run_folder.unreadable == []
    assert not list(tmp_path.rglob("*.partial"))


def test_output_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("not ours")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records").write_text("not ours")
    outputs = (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "run", Path("/proc/none"))
    for path in outputs:
        with (
            pytest.raises(RunFolderError, match=f"cannot write to {path}"),
            locked_run_folder(path, resume=False),
        ):
            raise AssertionError("the run has begun")
    assert (tmp_path / "file").read_text() == "not ours"
    assert (tmp_path / "run" / "records").read_text() == "not ours"


def test_record_under_another_name_is_left_alone_and_named(tmp_path):
    run_folder = RunFolder(tmp_path)
    record = WHOLE[0]
    with run_folder.locked():
        other = tmp_path / "records" / f"{WHOLE[1].trial_id}.json"
        other.write_text(json.dumps(to_json(record)))
        assert run_folder.records() == {}
        assert run_folder.unreadable == [other]
        run_folder.write(record)
    assert run_folder.records() == {record.trial_id: record}


@pytest.mark.parametrize("is_noticed_by", ["a look", "a record"])
def test_session_whose_folder_was_renamed_does_not_wait_for_running_trials(is_noticed_by, tmp_path):
    folder = RunFolder(tmp_path / "run")
    session = Session(Grid(SPECS), folder)
    with contextlib.suppress(RunFolderError), folder.locked():
        spec = session.next_trial()
        assert spec is not None
        session.start([spec])
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        if is_noticed_by == "a look":
            session.check_folder()
        else:
            session.ended(ended(spec, Outcome.FAILED, started_at=1.8e9))
        assert session.is_futile
        assert session.finished
        assert not (tmp_path / "run").exists()
