"""Whole sweeps on a real Ray: every planned trial ends in exactly one record, whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from orchestrator import sweep
from orchestrator.running.cluster import connected, run_trials
from orchestrator.running.session import CloseReason, Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import Announcement, has_ended, parent_of, with_fault
from tests.support.observers import Recorder

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


class Sweep:
    """A sweep of the given trials in a folder, without its command line."""

    def __init__(
        self,
        folder: Path,
        trials: Iterable[TrialSpec],
        *,
        budget: float | None = None,
        session: type[Session] = Session,
    ) -> None:
        self.trials = list(trials)
        self.observer = Recorder()
        self.folder = RunFolder(folder)
        self.session = session(
            Grid(self.trials), self.folder, [self.observer], time_budget_seconds=budget
        )

    def run(self, *, resume: bool = False, retries: int = 2) -> dict[str, TrialRecord]:
        """Run what has not been run; the records, of which there is one for every trial."""
        with self.folder.locked(), connected(None) as cluster:
            environments = [node.environment for node in cluster.nodes]
            self.session.reuse(self.folder.records(), environments, resume=resume)
            run_trials(self.session, cluster, retries=retries)
            self.session.write_missing_records()
        records = self.folder.records()
        assert set(records) == {trial.trial_id for trial in self.trials}
        assert self.folder.unreadable == []
        return records

    def ended(self) -> list[str]:
        """Ids of the trials whose end was told, in order."""
        return [trial_id for kind, trial_id in self.observer.events if kind == "ended"]


def good_trials(count: int) -> list[TrialSpec]:
    """Equal but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(count)]


@pytest.mark.usefixtures("ray_session")
def test_faulty_trials_have_their_records_and_harm_no_other(tmp_path: Path) -> None:
    good = good_trials(4)
    faulty = {
        "raise_error": Outcome.FAILED,
        "kill": Outcome.CRASHED,
        "exit_silently": Outcome.CRASHED,
        "raise_memory_error": Outcome.HOST_OUT_OF_MEMORY,
        "hang": Outcome.TIMED_OUT,
    }
    bad = [with_fault(build_tiny_spec(timeout_seconds=3.0), fault) for fault in faulty]
    alternating = [trial for pair in zip(good, bad, strict=False) for trial in pair]
    swept = Sweep(tmp_path, [*alternating, *bad[len(good) :]])
    records = swept.run()
    assert swept.ended() == [trial.trial_id for trial in swept.trials]
    assert [records[trial.trial_id].outcome for trial in bad] == list(faulty.values())
    ok = [records[trial.trial_id] for trial in good]
    assert {record.outcome for record in ok} == {Outcome.OK}
    assert len({record.measurements["peak_allocated_bytes"] for record in ok}) == 1
    assert len({tuple(record.steps["loss"]) for record in ok}) == 1
    assert len({record.delivery.slot_pid for record in ok}) == 1


@pytest.mark.usefixtures("ray_session")
def test_killed_actors_cost_no_record(tmp_path: Path) -> None:
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
        records = swept.run(retries=1)  # each costs a parent's imports
        assert has_ended(killing.result())
    assert sorted(swept.ended()) == sorted(records)
    assert records[killed_always.trial_id].outcome is Outcome.CRASHED
    assert records[killed_always.trial_id].reason
    unharmed = {records[trial.trial_id].outcome for trial in (first, killed_once, last)}
    assert unharmed == {Outcome.OK}


@pytest.mark.usefixtures("ray_session")
def test_budget_cuts_the_running_trial_short(tmp_path: Path) -> None:
    hanging = with_fault(build_tiny_spec(timeout_seconds=600.0), "hang")
    second, last = good_trials(2)
    records = Sweep(tmp_path, [hanging, second, last], budget=5.0).run()
    # The second was given out by then: it is given a second, and may end well in it.
    cut, unstarted = records[hanging.trial_id], records[last.trial_id]
    skipped = (Outcome.SKIPPED, "time_budget")
    assert (cut.outcome, cut.rule) == (unstarted.outcome, unstarted.rule) == skipped
    assert "while the trial was in phase" in cut.reason


class InterruptedEarly(Session):
    """A session whose user presses Ctrl-C when the first trial has ended."""

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        if self.close_reason is None:
            self.interrupt()


@pytest.mark.usefixtures("ray_session")
def test_interrupted_sweep_is_completed_by_a_resume(tmp_path: Path) -> None:
    trials = good_trials(4)
    swept = Sweep(tmp_path, trials, session=InterruptedEarly)
    records = swept.run()
    assert swept.session.close_reason is CloseReason.INTERRUPTED
    finished = {name: record for name, record in records.items() if record.outcome is Outcome.OK}
    skipped = [record for name, record in records.items() if name not in finished]
    assert finished
    assert {(own.outcome, own.rule) for own in skipped} == {(Outcome.SKIPPED, "interrupted")}
    completed = Sweep(tmp_path, trials).run(resume=True)
    assert {record.outcome for record in completed.values()} == {Outcome.OK}
    assert {name: completed[name] for name in finished} == finished


CONFIG = """\
model:
  task: sequence-classification
  architecture: bert
  config:
    hidden_size: 32
    num_hidden_layers: 2
    num_attention_heads: 2
    intermediate_size: 64
    vocab_size: 128
    max_position_embeddings: 16
data:
  synthetic: {{sequence_length: 16, samples: 16}}
axes:
  micro_batch: {micro_batches}
  {axis}
measure: {{timeout: 60s}}
cpu_fallback: {{warmup_steps: 1, steps: {steps}, time_budget: 10m}}
budgets: [1MiB]
"""
OPTIMIZERS = "optimizer: [adamw_torch_fused, sgd]"
TABLES = ["trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"]
FILES = [*TABLES, "report.md", "report.html", "frontier.png", "run.json"]


def config_of(
    folder: Path, micro_batches: list[int], *, steps: int = 2, axis: str = OPTIMIZERS
) -> Path:
    """A sweep's file."""
    path = folder / "tiny.yaml"
    path.write_text(CONFIG.format(micro_batches=micro_batches, steps=steps, axis=axis))
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


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of four tiny trials."""
    return config_of(tmp_path_factory.mktemp("sweep"), [1, 2])


@pytest.fixture(scope="module")
def first(config: Path, ray_session: None) -> Path:
    """The four trials measured, and where; not to be written to."""
    folder = config.parent / "first"
    assert run_sweep(config, folder) == 0
    return folder


@pytest.fixture
def measured(first: Path, tmp_path: Path) -> Path:
    """A copy of that run folder for a test of its own."""
    return Path(shutil.copytree(first, tmp_path / "run"))


def test_second_run_keeps_every_record_and_foreign_files(
    config: Path, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = sorted((measured / "records").iterdir())[0]
    torn, foreign = (measured / "records" / name for name in ("torn.json", "foreign.json"))
    torn.write_text(record.read_text()[:100])
    foreign.write_text(json.dumps({"another": "program's"}))
    contents = {path: path.read_text() for path in (torn, foreign)}
    before = written(measured)
    assert run_sweep(config, measured) == 0
    printed = capsys.readouterr().out
    assert "4 trials measured before: kept" in printed
    assert written(measured) == before
    for path, content in contents.items():
        assert f"{path} is not a record of this program; it is left alone" in printed
        assert path.read_text() == content
    assert len(RunFolder(measured).records()) == 4


def test_fresh_measures_again_and_drops_what_is_not_planned(measured: Path, tmp_path: Path) -> None:
    before = written(measured)
    assert run_sweep(config_of(tmp_path, [1]), measured, "--fresh") == 0
    after = written(measured)
    assert len(after) == 2
    assert after.keys() < before.keys()
    assert all(after[name] > before[name] for name in after)


@pytest.mark.usefixtures("ray_session")
def test_sweep_without_an_ok_trial_fails_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(tmp_path, [1], axis="attention: [flash_attention_2]")
    assert run_sweep(config, tmp_path / "run") == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("no trial ended ok: 1 of 1 trial ended with unsupported, most often: ")
    assert (tmp_path / "run" / "report.md").exists(), "the report says more"


def test_killed_driver_is_resumed(tmp_path: Path) -> None:
    """Two processes, as a user starts them, each with a Ray of its own."""
    config, folder = config_of(tmp_path, [1, 2, 4], steps=50), tmp_path / "run"
    with subprocess.Popen(
        command(config, folder), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert any(line.startswith("[2/6]") for line in driver.stdout)
        driver.kill()
    finished = RunFolder(folder).records()
    before = written(folder)
    assert 2 <= len(finished) < 6
    (slot_parent,) = {record.delivery.slot_pid for record in finished.values()}
    assert slot_parent is not None
    assert has_ended(slot_parent), "the killed driver's slot lives on"

    resumed = subprocess.run(
        command(config, folder, "--resume"), cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert resumed.returncode == 0, resumed.stderr
    assert "Traceback" not in resumed.stderr
    records, after = RunFolder(folder).records(), written(folder)
    assert f"{len(finished)} trials measured before: kept" in resumed.stdout
    assert len(records) == 6
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    names = {f"{trial_id}.json" for trial_id in finished}
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    for words in ("6 trials, 0 ruled out, on no GPU", "[6/6]", "Pareto front", "memory budget"):
        assert words in resumed.stdout
    for name in FILES:
        assert (folder / name).stat().st_size > 0
        assert name == "run.json" or str(folder / name) in resumed.stdout


def test_folder_in_use_is_refused(
    config: Path, measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written(measured)
    with open(measured / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_sweep(config, measured, "--fresh") == 1
    assert capsys.readouterr().err.strip() == f"{measured} is in use by another running sweep"
    assert written(measured) == before


@pytest.mark.usefixtures("ray_session")
def test_resume_needs_a_run(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_sweep(config, tmp_path / "nothing", "--resume") == 2
    assert capsys.readouterr().err.strip() == f"{tmp_path / 'nothing'}: no run to resume"
    assert not (tmp_path / "nothing").exists()
