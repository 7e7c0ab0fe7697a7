"""Two hundred damaged run folders: every verb goes on with what is whole or says a sentence, and nothing is lost."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow
import pytest

import orchestrator
from jobs.record import Outcome, TrialRecord, record_to_json
from orchestrator import compare, explain, recommend, report
from orchestrator.cli import holding
from orchestrator.running import lifecycle
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder, RunFolderError
from orchestrator.storage.run_metadata import UnreadableRunError, read_records
from orchestrator.storage.tables import parquet
from tests.support.damages import WHOLE, damaged, overwritten, torn

ROOT = Path(__file__).parents[3]


def contents(folder: Path) -> dict[str, bytes | str]:
    """What lies among the records, without waiting for pipes."""
    return {
        path.name: path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else os.fsdecode(path.name)
        for path in sorted((folder / "records").iterdir())
    }


def verb(main: Callable[[Sequence[str]], int], *arguments: str) -> tuple[int, str]:
    """A verb's exit status and what it printed."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        status = main(arguments)
    return status, out.getvalue() + err.getvalue()


@contextlib.contextmanager
def told_by(path: Path, *errors: type[Exception]) -> Iterator[list[Exception]]:
    """What may be raised here, provided that it names the path."""
    told: list[Exception] = []
    try:
        yield told
    except errors as error:
        told.append(error)
    assert all(str(path) in str(error) for error in told)


def use(folder: Path, whole: set[str], *, publish: bool) -> None:
    """Everything that reads a run folder reads this one; what was whole is found by all of them."""
    before, store = contents(folder), RunFolder(folder)
    found = store.records()
    assert whole <= {*found}
    for trial_id, record in found.items():
        assert record.trial_id == trial_id
    assert {path.name for path in store.unreadable} <= {*before}
    with told_by(folder, FileNotFoundError, UnreadableRunError):
        run = orchestrator.load(folder)
        assert whole <= {row["trial_id"] for row in run.rows}
        assert {row["trial_id"] for row in run.rows} == {*found}
        run._repr_html_()
    told = [
        verb(recommend.main, str(folder), "--any-training", *chosen) for chosen in (["--json"], [])
    ]
    told.append(verb(compare.main, str(folder), str(folder), "--unlike"))
    told.append(
        verb(explain.main, str(folder), *(record.trial_id for record in WHOLE[3:5]), "--json")
    )
    if publish:
        told.append(verb(report.main, str(folder), "--open-nothing"))
    for status, text in told:
        assert status in (0, 1, 2, 3)
        assert text.strip()
        assert "Traceback" not in text
    assert contents(folder) == before, "reading changes nothing"


@pytest.mark.parametrize("block", range(10))
def test_two_hundred_damaged_folders_are_read_as_far_as_they_are_whole(
    block: int, tmp_path: Path
) -> None:
    for seed in range(20 * block, 20 * block + 20):
        folder = tmp_path / str(seed)
        try:
            use(folder, damaged(folder, seed), publish=seed % 70 == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def resumed(folder: Path) -> Session:
    """A resumed sweep of ``WHOLE``'s trials over the folder, run to its end by a slot that needs no time."""
    store, here = RunFolder(folder), WHOLE[0].environment
    progress = Progress(len(WHOLE), 1, (), stream=io.StringIO())
    session = Session(
        Grid([record.spec for record in WHOLE]), store, progress, time_budget_seconds=None
    )
    with store.locked():
        session.reuse(
            lifecycle.still_wanted(store, lambda spec: spec in SPECS, fresh=False),
            [here],
            resume=True,
        )
        while (spec := session.next_trial()) is not None:
            session.ended(
                TrialRecord(spec=spec, outcome=Outcome.FAILED, environment=here, started_at=1.8e9)
            )
        session.account()
    return session


SPECS = [record.spec for record in WHOLE]


@pytest.mark.parametrize("block", range(4))
def test_a_resumed_sweep_repeats_nothing_whole_and_ends_with_one_row_a_trial(
    block: int, tmp_path: Path
) -> None:
    finished = {record.trial_id: record for record in WHOLE if record.outcome.is_final}
    for seed in range(25 * block, 25 * block + 25):
        folder = tmp_path / str(seed)
        whole = damaged(folder, seed)
        with told_by(folder, RunFolderError) as told:
            resumed(folder)
        if any("Is a directory" in str(error) for error in told):
            continue  # something stands where a record belongs: said, and left alone
        assert not told
        rows = read_records(folder)
        assert sorted(row.trial_id for row in rows) == sorted(
            record.trial_id for record in WHOLE
        ), seed
        assert all(
            row == finished[row.trial_id] for row in rows if row.trial_id in whole & {*finished}
        ), seed


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which only its tables were kept."""
    folder = tmp_path_factory.mktemp("published")
    parquet.write(parquet.trials_table(WHOLE), folder / "trials.parquet")
    parquet.write(parquet.steps_table(WHOLE), folder / "steps.parquet")
    parquet.write(parquet.anatomy_table(WHOLE), folder / "anatomy.parquet")
    return folder


@pytest.mark.parametrize("name", ["trials.parquet", "steps.parquet", "anatomy.parquet"])
def test_a_table_torn_anywhere_is_a_sentence(name: str, published: Path, tmp_path: Path) -> None:
    folder, chance, said = shutil.copytree(published, tmp_path / "run"), random.Random(name), 0
    for damage in (torn, overwritten) * 15:
        shutil.copy(published / name, folder / name)
        damage(folder / name, chance)
        with told_by(folder / name, UnreadableRunError) as told:
            orchestrator.load(folder).recommend()
            parquet.anatomies_of(folder)
        said += len(told)
        status, text = verb(recommend.main, str(folder))
        assert status in (0, 2)
        assert "Traceback" not in text
    assert said >= 20


def test_a_foreign_table_is_a_sentence(tmp_path: Path) -> None:
    parquet.write(pyarrow.table({"a": [1]}), tmp_path / "trials.parquet")
    status, text = verb(report.main, str(tmp_path), "--open-nothing")
    assert (status, text) == (
        2,
        f"{tmp_path}/trials.parquet is no table of this program: it has no column trial_id\n",
    )


@pytest.mark.parametrize("main", [report.main, recommend.main], ids=["report", "recommend"])
@pytest.mark.parametrize("place", ["a file", "nothing", "an empty folder", "a loop"])
def test_what_is_no_run_is_a_sentence(
    main: Callable[[Sequence[str]], int], place: str, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    match place:
        case "a file":
            path.write_text("no run")
        case "an empty folder":
            path.mkdir()
        case "a loop":
            path.symlink_to("run")
    status, text = verb(main, str(path))
    assert status == 2
    assert text.count("\n") == 1
    assert str(path) in text


def test_a_full_disk_stops_the_run_in_a_sentence_and_leaves_what_was_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    damaged(folder, 0)
    program = """
import resource, signal, sys
from pathlib import Path
from orchestrator import cli
from tests.support.records import make_record

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
write = lambda folder: folder.write(make_record(micro_batch=64)) or 0
cli.finish(lambda: cli.holding(Path(sys.argv[1]), write, resume=True))
"""
    before = contents(folder)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, cwd=ROOT
    )
    assert ran.returncode == 1
    assert "cannot write" in ran.stderr
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert contents(folder) == before, "not even half a file"


@pytest.mark.parametrize("room_again", [True, False])
def test_a_disk_that_fills_up_ends_the_sweep_with_every_row_that_there_is_room_for(
    room_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writes = RunFolder(tmp_path), iter(range(100))

    def fsync(file: int) -> None:
        if (write := next(writes)) == 2 or (write > 2 and not room_again):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    progress = Progress(len(SPECS), 1, (), stream=io.StringIO())
    session = Session(Grid(SPECS), store, progress, time_budget_seconds=None)
    with store.locked():
        while (spec := session.next_trial()) is not None:
            session.ended(TrialRecord(spec=spec, outcome=Outcome.FAILED, started_at=1.8e9))
        with pytest.raises(
            RunFolderError, match="No space left on device; what was written before is whole"
        ):
            session.account()
    outcomes = [
        store.records()[spec.trial_id].outcome for spec in SPECS if spec.trial_id in store.records()
    ]
    failed, skipped = [Outcome.FAILED], [Outcome.SKIPPED]
    assert outcomes == (failed * 3 + skipped * (len(SPECS) - 3) if room_again else failed * 2)
    assert store.unreadable == []
    assert not list(tmp_path.rglob("*.partial"))


def test_an_output_that_cannot_be_written_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("somebody's")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records").write_text("somebody's")
    for path in (
        tmp_path / "file",
        tmp_path / "file" / "below",
        tmp_path / "run",
        Path("/proc/none"),
    ):
        assert holding(path, lambda folder: 0, resume=False) == 1
        assert f"cannot write to {path}" in capsys.readouterr().err
    assert (
        (tmp_path / "file").read_text()
        == (tmp_path / "run" / "records").read_text()
        == "somebody's"
    )


def test_a_trial_under_two_names_is_one_row_after_the_next_write(tmp_path: Path) -> None:
    store, record = RunFolder(tmp_path), WHOLE[0]
    with store.locked():
        old = tmp_path / "records" / "name-of-an-earlier-version.json"
        old.write_text(json.dumps(record_to_json(record)))
        assert store.records() == {record.trial_id: record}
        store.write(record)
    assert contents(tmp_path).keys() == {f"{record.trial_id}.json"}
