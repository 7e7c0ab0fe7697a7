"""A sweep watched from its folder alone, and what is said of a run before it has finished."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import report
from orchestrator.running.follow import follow
from orchestrator.storage.run_folder import RunFolder, RunFolderBusyError
from tests.support.records import make_record, write_run

START = 1_700_000_000.0
RUN = {"planned": 4, "axes": ["micro_batch"], "started_at": START, "finished": False}


def trial(micro_batch: int, seconds: float, **given: object) -> TrialRecord:
    """A trial that began so many seconds after the sweep."""
    record = make_record(
        micro_batch=micro_batch, speed=10.0 * micro_batch, started_at=START + seconds, **given
    )
    return dataclasses.replace(record, slot_seconds=3.0)


class Sweep:
    """A driver that does one thing each time somebody looks."""

    def __init__(self, folder: Path, *steps: Callable[[], object]) -> None:
        self.lock = contextlib.ExitStack()
        self.lock.enter_context(RunFolder(folder).locked())
        self._steps = iter((*steps, self.lock.close))

    def __call__(self, seconds: float) -> None:
        next(self._steps)()


def test_a_line_a_trial_until_the_driver_lets_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier = make_record(micro_batch=1, speed=5.0, started_at=START - 100)
    ruled_out = make_record(
        micro_batch=64, outcome=Outcome.UNSUPPORTED, rule="batch", started_at=0.0
    )
    first, second, third = (
        trial(2, 1),
        trial(4, 5),
        trial(8, 9, outcome=Outcome.OUT_OF_MEMORY, reason="too large"),
    )
    write_run(tmp_path, [earlier, ruled_out, first], **RUN)
    sweep = Sweep(
        tmp_path,
        lambda: None,
        lambda: RunFolder(tmp_path).write(second),
        lambda: RunFolder(tmp_path).write(third),
        lambda: RunFolder(tmp_path).describe({**RUN, "finished": True}),
    )
    follow(tmp_path, wait=sweep)
    assert capsys.readouterr().out.splitlines() == [
        "[3/4]  ok         micro_batch=4  40.0 samples/s  1.56 GiB  (3.0 s)",
        "[4/4]  OOM        micro_batch=8  too large",
        "-- 4 of 4 done (3 ok, 1 OOM) | fastest 40.0/s: micro_batch=4 | slot time 0m09s",
    ]


def test_a_driver_that_was_killed_leaves_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, [trial(2, 1)], **RUN)
    follow(tmp_path, wait=Sweep(tmp_path), to_stderr=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == (
        "-- the sweep has ended and not finished; the same command with --resume continues it"
    )


def test_an_earlier_run_of_the_folder_is_not_taken_for_this_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, [trial(2, 1)], **{**RUN, "planned": 1, "finished": True})
    begun = {**RUN, "planned": 2, "started_at": START + 50, "finished": False}
    folder = RunFolder(tmp_path)
    sweep = Sweep(
        tmp_path,
        lambda: folder.describe(begun),
        lambda: folder.write(trial(4, 60)),
        lambda: folder.describe({**begun, "finished": True}),
    )
    follow(tmp_path, wait=sweep)
    assert capsys.readouterr().out.splitlines()[0].startswith("[2/2]  ok         micro_batch=4")


def test_a_folder_is_in_use_while_somebody_holds_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert not folder.in_use()
    with folder.locked():
        assert RunFolder(tmp_path).in_use()
        with pytest.raises(RunFolderBusyError), RunFolder(tmp_path).locked():
            pass
    assert not folder.in_use()


def test_a_report_in_mid_run_says_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ruled_out = make_record(
        micro_batch=64, outcome=Outcome.UNSUPPORTED, rule="batch", started_at=0.0
    )
    write_run(tmp_path, [trial(2, 1), trial(4, 5), ruled_out], **RUN)
    assert report.main([str(tmp_path), "--open-nothing"]) == 0
    sentence = "unfinished: 2 of 4 trials so far, and what is said here may change."
    assert sentence in capsys.readouterr().out
    assert sentence in (tmp_path / "report.md").read_text()
    assert sentence[1:] in (tmp_path / "report.html").read_text()
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**run, "finished": True}))
    assert report.main([str(tmp_path), "--watch", "--open-nothing"]) == 0
    assert "unfinished" not in capsys.readouterr().out


def test_watching_needs_a_folder_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        report.main(["s3://bucket/run", "--watch"])
    assert "--watch follows a folder of this machine" in capsys.readouterr().err
    assert report.main([str(tmp_path / "none"), "--watch"]) == 2
