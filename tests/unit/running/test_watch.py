"""A sweep followed from its folder alone."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from orchestrator import report
from orchestrator.running.watch import watch
from orchestrator.storage.run_folder import RunFolder
from tests.support.records import make_record, write_run

START = 1_700_000_000.0
RUN = {"planned": 4, "axes": ["micro_batch"], "started_at": START, "finished": False}


def trial(micro_batch: int, seconds: float, **given: object) -> TrialRecord:
    """A trial that began so many seconds after the sweep."""
    return make_record(
        micro_batch=micro_batch, speed=10.0 * micro_batch, started_at=START + seconds, **given
    )


class Driver:
    """Holds the folder, and does one thing each time the follower sleeps."""

    def __init__(self, folder: Path, *steps: Callable[[], object]) -> None:
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(RunFolder(folder).locked())
        self._steps = iter((*steps, self._lock.close))

    def __call__(self, seconds: float) -> None:
        next(self._steps)()


def test_watch_prints_a_line_per_trial_until_the_driver_ends(tmp_path, capsys):
    earlier = make_record(micro_batch=1, speed=5.0, started_at=START - 100)
    ruled_out = make_record(
        micro_batch=64, outcome=Outcome.UNSUPPORTED, rule="batch", started_at=0.0
    )
    first = trial(2, 1)
    second = trial(4, 5)
    third = trial(8, 9, outcome=Outcome.OUT_OF_MEMORY, reason="too large")
    write_run(tmp_path, [earlier, ruled_out, first], **RUN)
    driver = Driver(
        tmp_path,
        lambda: None,
        lambda: RunFolder(tmp_path).write(second),
        lambda: RunFolder(tmp_path).write(third),
        lambda: RunFolder(tmp_path).describe({**RUN, "finished": True}),
    )
    watch(tmp_path, sleep=driver)
    assert capsys.readouterr().out.splitlines() == [
        f"[3/4]  ok         batch 4  40.0 samples/s  1.56 GiB  (3.0 s)  {second.trial_id}",
        f"[4/4]  OOM        batch 8  too large  {third.trial_id}",
        "-- 4 of 4 done (3 ok, 1 OOM) | fastest 40.0 samples/s: batch 4 | slot time 9.0 s",
    ]


def test_watch_says_that_a_killed_driver_left_the_sweep_unfinished(tmp_path, capsys):
    write_run(tmp_path, [trial(2, 1)], **RUN)
    watch(tmp_path, sleep=Driver(tmp_path), to_stderr=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[-1] == (
        "-- the sweep has ended unfinished; the same command with --resume continues it"
    )


def test_watch_begins_again_when_another_run_begins(tmp_path, capsys):
    write_run(tmp_path, [trial(2, 1)], **{**RUN, "planned": 1, "finished": True})
    begun = {**RUN, "planned": 2, "started_at": START + 50, "finished": False}
    folder = RunFolder(tmp_path)
    driver = Driver(
        tmp_path,
        lambda: folder.describe(begun),
        lambda: folder.write(trial(4, 60)),
        lambda: folder.describe({**begun, "finished": True}),
    )
    watch(tmp_path, sleep=driver)
    assert capsys.readouterr().out.splitlines()[0].startswith("[2/2]  ok         batch 4")


def test_watch_writes_the_pages_of_a_sweep_that_has_ended(tmp_path, capsys):
    write_run(tmp_path, [trial(2, 1), trial(4, 5)], **RUN)
    assert report.main([str(tmp_path), "--watch", "--no-browser"]) == 0
    assert "2 of 4 trials so far" in capsys.readouterr().out
    assert (tmp_path / "report.html").exists()


def test_watch_needs_a_folder_of_this_machine(tmp_path, capsys):
    with pytest.raises(SystemExit):
        report.main(["s3://bucket/run", "--watch"])
    assert "--watch follows a folder of this machine" in capsys.readouterr().err
    assert report.main([str(tmp_path / "none"), "--watch"]) == 2
