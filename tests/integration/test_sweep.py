"""Whole sweeps on a real Ray: every planned trial ends in exactly one record, whatever happens."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator import sweep
from orchestrator.running.close_reason import CloseReason
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.session import Session
from orchestrator.search.base import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import TINY_CONFIG, build_tiny_spec
from tests.support import light_parent
from tests.support.another_jobs import write_another_jobs
from tests.support.commands import ROOT
from tests.support.faults import Announcement, has_ended, parent_of, with_fault
from tests.support.light_slot import LightSlotTrainable
from tests.support.observers import Recorder
from tests.support.records import make_record, write_run

pytestmark = pytest.mark.slow


class Sweep:
    """A sweep of the given trials in a folder, without its command line."""

    def __init__(
        self, folder: Path, trials: Iterable[TrialSpec], *, session: type[Session] = Session
    ) -> None:
        self.trials = list(trials)
        self.observer = Recorder()
        self.folder = RunFolder(folder)
        self.session = session(Grid(self.trials), self.folder, [self.observer])

    def run(self, **options: Any) -> dict[str, TrialRecord]:
        """Run every trial; the records, of which there is one for each.

        ``options`` are those of ``run_trials``.
        """
        with self.folder.locked(), connected(None) as cluster:
            run_trials(self.session, cluster, **options)
            self.session.write_missing_records()
        records = self.folder.records()
        assert set(records) == {trial.trial_id for trial in self.trials}
        assert self.folder.unreadable == []
        return records

    def ended(self) -> list[str]:
        """Ids of the trials whose end was reported, in order."""
        return [trial_id for kind, trial_id in self.observer.events if kind == "ended"]


def good_trials(count: int) -> list[TrialSpec]:
    """Equal but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(count)]


@pytest.mark.usefixtures("ray_session")
def test_faulty_trials_have_their_records_and_harm_no_other(tmp_path):
    good = good_trials(3)
    faulty = {"kill": Outcome.CRASHED, "exit_silently": Outcome.CRASHED, "hang": Outcome.TIMED_OUT}
    bad = [with_fault(build_tiny_spec(timeout_seconds=1.0), fault) for fault in faulty]
    swept = Sweep(tmp_path, [trial for pair in zip(good, bad, strict=True) for trial in pair])
    records = swept.run(trainable=LightSlotTrainable)
    assert swept.ended() == [trial.trial_id for trial in swept.trials]
    assert [records[trial.trial_id].outcome for trial in bad] == list(faulty.values())
    ok = [records[trial.trial_id] for trial in good]
    assert {record.outcome for record in ok} == {Outcome.OK}
    assert len({record.provenance.slot_pid for record in ok}) == 1


@pytest.mark.usefixtures("ray_session")
def test_killed_actors_cost_no_record(tmp_path):
    announcement = Announcement(tmp_path / "announcement")
    first, last = good_trials(2)
    killed_once = with_fault(build_tiny_spec(), "hang_once", announce=announcement.path)
    killed_always = with_fault(build_tiny_spec(), "kill_slots_owner")
    swept = Sweep(tmp_path / "run", [first, killed_once, last, killed_always])

    def kill_actor() -> int:
        slot_parent = announcement.wait()["parent"]
        os.kill(parent_of(slot_parent), signal.SIGKILL)
        return slot_parent

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_actor)
        records = swept.run(retries=1, trainable=LightSlotTrainable)
        assert has_ended(killing.result())
    assert sorted(swept.ended()) == sorted(records)
    assert records[killed_always.trial_id].outcome is Outcome.CRASHED
    assert records[killed_always.trial_id].reason
    unharmed = {records[trial.trial_id].outcome for trial in (first, killed_once, last)}
    assert unharmed == {Outcome.OK}


class Interrupted(Session):
    """A session that is interrupted when the first trial has ended."""

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        if self.close_reason is None:
            os.kill(os.getpid(), signal.SIGTERM)  # Ctrl-C may be ignored, as behind nohup


@pytest.mark.usefixtures("ray_session")
def test_interruption_lets_running_trials_finish_and_skips_the_rest(tmp_path):
    swept = Sweep(tmp_path, good_trials(4), session=Interrupted)
    records = swept.run(trainable=LightSlotTrainable)
    assert swept.session.close_reason is CloseReason.INTERRUPTED
    outcomes = {(record.outcome, record.rule) for record in records.values()}
    assert outcomes == {(Outcome.OK, ""), (Outcome.SKIPPED, "interrupted")}


CONFIG = (
    TINY_CONFIG
    + """\
axes:
  micro_batch: {micro_batches}
  optimizer: [adamw_torch_fused, sgd]
measure: {{timeout: 10m}}
cpu_fallback: {{warmup_steps: 1, steps: 2, time_budget: 10m}}
budgets: [1MiB]
"""
)
TABLES = ["trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"]
FILES = [*TABLES, "report.md", "report.html", "frontier.png", "run.json"]


def config_of(folder: Path, micro_batches: list[int]) -> Path:
    """A sweep's file."""
    path = folder / "tiny.yaml"
    path.write_text(CONFIG.format(micro_batches=micro_batches))
    return path


def run_sweep(config: Path, folder: Path, *options: str) -> int:
    """The verb's exit status, in this process and on its Ray."""
    return sweep.main([str(config), "--output", str(folder), *options])


def command(config: Path, folder: Path, *options: str) -> list[str]:
    """The sweep's command line."""
    verb = [sys.executable, "-m", "orchestrator.sweep", str(config)]
    return [*verb, "--output", str(folder), *options]


def written(folder: Path) -> dict[str, int]:
    """When each record was written, in nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "records").iterdir())}


def test_killed_driver_is_resumed(tmp_path):
    """Two processes, as a user starts them, each with a Ray of its own. Trials of the first only
    pretend to train: two end at once, and the next one is running when the driver is killed.

    In their working folder is a package ``jobs`` of the user's, which no process may import.
    """
    config, folder = config_of(tmp_path, [1, 2]), tmp_path / "run"
    here: dict[str, Any] = {"cwd": write_another_jobs(tmp_path), "text": True}
    light = {**os.environ, **light_parent.variables(500.0)}
    first: dict[str, Any] = {**here, "env": light, "stdout": subprocess.PIPE}
    with subprocess.Popen(command(config, folder), **first) as driver:
        assert any(line.startswith("[2/4]") for line in driver.stdout)
        driver.kill()
    finished = RunFolder(folder).records()
    before = written(folder)
    assert len(finished) == 2
    (slot_parent,) = {record.provenance.slot_pid for record in finished.values()}
    assert slot_parent is not None
    assert has_ended(slot_parent), "the killed driver's slot lives on"

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    again = command(config, folder, "--resume")
    resumed = subprocess.run(again, env=environment, capture_output=True, **here)
    assert resumed.returncode == 0, resumed.stderr
    assert "Traceback" not in resumed.stderr
    records, after = RunFolder(folder).records(), written(folder)
    assert "2 trials measured before: kept" in resumed.stdout
    assert len(records) == 4
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    names = {f"{trial_id}.json" for trial_id in finished}
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    for words in ("4 trials, 0 ruled out, on no GPU", "[4/4]", "Pareto front", "memory budget"):
        assert words in resumed.stdout
    for name in FILES:
        assert (folder / name).stat().st_size > 0
        assert name == "run.json" or str(folder / name) in resumed.stdout


@pytest.mark.usefixtures("ray_session")
def test_folder_in_use_is_refused(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [make_record()])
    before = written(folder)
    with RunFolder(folder).locked():
        assert run_sweep(config_of(tmp_path, [1]), folder, "--fresh") == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"{folder} is in use by another running sweep"
    assert written(folder) == before


@pytest.mark.usefixtures("ray_session")
def test_folder_renamed_in_mid_run_ends_the_sweep(tmp_path, monkeypatch, capsys):
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    ended = Session.ended

    def then_rename(session: Session, record: TrialRecord) -> None:
        ended(session, record)
        if folder.exists():
            folder.rename(elsewhere)

    monkeypatch.setattr(Session, "ended", then_rename)
    monkeypatch.setitem(run_trials.__kwdefaults__, "trainable", LightSlotTrainable)
    assert run_sweep(config_of(tmp_path, [1, 2]), folder) == 1
    error = capsys.readouterr().err
    assert "was moved, deleted or replaced while this sweep ran" in error
    assert "Traceback" not in error
    assert not folder.exists()
    assert RunFolder(elsewhere).records()


@pytest.mark.usefixtures("ray_session")
def test_resume_needs_a_run(tmp_path, capsys):
    folder = tmp_path / "nothing"
    assert run_sweep(config_of(tmp_path, [1]), folder, "--resume") == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"{folder}: no run to resume"
    assert not folder.exists()
