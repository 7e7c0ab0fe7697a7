"""Whole sweeps on a real Ray: every planned trial ends in exactly one record, whatever happens to anybody."""

from __future__ import annotations

import fcntl
import io
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
from orchestrator.running import cluster as ray_cluster
from orchestrator.running.cluster import tune_callback
from orchestrator.running.progress import Progress
from orchestrator.running.session import Session
from orchestrator.search.grid import Grid
from orchestrator.storage.run_folder import RunFolder
from tests.conftest import build_tiny_spec
from tests.support.faults import Announcement, has_ended, parent_of, with_fault

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


class Sweep:
    """The parts of a sweep of the given trials in a folder, without its command line."""

    def __init__(
        self,
        folder: Path,
        trials: Iterable[TrialSpec],
        *,
        budget: float | None = None,
        session: type[Session] = Session,
    ) -> None:
        self.trials = list(trials)
        self.output = io.StringIO()
        self.folder = RunFolder(folder)
        progress = Progress(len(self.trials), 1, ("micro_batch",), stream=self.output)
        self.session = session(Grid(self.trials), self.folder, progress, time_budget_seconds=budget)

    def run(self, *, resume: bool = False) -> dict[str, TrialRecord]:
        """Run what has not been run; the records, of which there is one for every trial and no other."""
        with self.folder.locked(), ray_cluster.connected(None) as cluster:
            environments = [node.environment for node in cluster.nodes]
            self.session.reuse(self.folder.records(), environments, resume=resume)
            ray_cluster.run(self.session, cluster)
            self.session.account()
        records = self.folder.records()
        assert set(records) == {trial.trial_id for trial in self.trials}
        assert self.folder.unreadable == []
        return records

    def lines(self) -> int:
        """Trials that progress has printed a line for."""
        return sum(line.startswith("[") for line in self.output.getvalue().splitlines())


def good_trials(count: int) -> list[TrialSpec]:
    """Alike but for their number."""
    return [build_tiny_spec(repeat=number) for number in range(count)]


@pytest.mark.usefixtures("ray_session")
def test_faulty_trials_are_rows_and_the_others_unharmed(tmp_path: Path) -> None:
    good = good_trials(4)
    faulty = {
        "raise_error": Outcome.FAILED,
        "kill": Outcome.CRASHED,
        "exit_silently": Outcome.CRASHED,
        "raise_memory_error": Outcome.HOST_OUT_OF_MEMORY,
        "hang": Outcome.TIMED_OUT,
    }
    bad = [with_fault(build_tiny_spec(timeout_seconds=3.0), fault) for fault in faulty]
    one_after_another = [trial for pair in zip(good, bad, strict=False) for trial in pair] + bad[
        len(good) :
    ]
    sweep = Sweep(tmp_path, one_after_another)
    records = sweep.run()
    assert sweep.lines() == len(sweep.trials)
    assert [records[trial.trial_id].outcome for trial in bad] == list(faulty.values())
    ok = [records[trial.trial_id] for trial in good]
    assert {record.outcome for record in ok} == {Outcome.OK}
    assert len({record.measurements["peak_allocated_bytes"] for record in ok}) == 1
    assert len({tuple(record.steps["loss"]) for record in ok}) == 1
    assert len({record.measurements["slot_pid"] for record in ok}) == 1


@pytest.mark.usefixtures("ray_session")
def test_killed_actors_cost_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_callback, "INFRASTRUCTURE_RETRIES", 1)  # each costs a parent's imports
    announcement = Announcement(tmp_path / "announcement")
    first, last = good_trials(2)
    killed_once = with_fault(build_tiny_spec(), "hang_once", announce=announcement.path)
    killed_always = with_fault(build_tiny_spec(), "kill_slots_owner")
    sweep = Sweep(tmp_path / "run", [first, killed_once, killed_always, last])

    def kill_actor() -> int:
        slot_parent = announcement.wait()["parent"]
        os.kill(parent_of(slot_parent), signal.SIGKILL)
        return slot_parent

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_actor)
        records = sweep.run()
        assert has_ended(killing.result())
    assert sweep.lines() == len(sweep.trials)
    assert records[killed_always.trial_id].outcome is Outcome.CRASHED
    assert records[killed_always.trial_id].reason
    assert {records[trial.trial_id].outcome for trial in (first, killed_once, last)} == {Outcome.OK}


@pytest.mark.usefixtures("ray_session")
def test_a_spent_budget_skips_the_rest(tmp_path: Path) -> None:
    records = Sweep(tmp_path, good_trials(3), budget=0.0).run()
    assert {(record.outcome, record.rule) for record in records.values()} == {
        (Outcome.SKIPPED, "time_budget")
    }
    assert {record.reason for record in records.values()} == {
        "the sweep's time budget ended before the trial's turn came"
    }


@pytest.mark.usefixtures("ray_session")
def test_a_budget_cuts_the_running_trial_short(tmp_path: Path) -> None:
    hanging = with_fault(build_tiny_spec(timeout_seconds=600.0), "hang")
    second, last = good_trials(2)
    records = Sweep(tmp_path, [hanging, second, last], budget=5.0).run()
    # The second was pending by then: it is given a second, and may end well in it.
    cut, unstarted = records[hanging.trial_id], records[last.trial_id]
    assert (
        (cut.outcome, cut.rule)
        == (unstarted.outcome, unstarted.rule)
        == (Outcome.SKIPPED, "time_budget")
    )
    assert "while the trial was in phase" in cut.reason


class SessionInterruptedEarly(Session):
    """A session whose person presses Ctrl-C when the first trial has ended."""

    def ended(self, record: TrialRecord) -> None:
        super().ended(record)
        if not self.interrupted:
            self.interrupt()


@pytest.mark.usefixtures("ray_session")
def test_an_interrupted_sweep_can_be_completed(tmp_path: Path) -> None:
    trials = good_trials(5)
    records = Sweep(tmp_path, trials, session=SessionInterruptedEarly).run()
    finished = {name: record for name, record in records.items() if record.outcome is Outcome.OK}
    skipped = [record for name, record in records.items() if name not in finished]
    assert finished
    assert {(record.outcome, record.rule) for record in skipped} == {
        (Outcome.SKIPPED, "interrupted")
    }
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
  optimizer: [adamw_torch_fused, sgd]
measure: {{deadline: 60s}}
cpu: {{warmup_steps: 1, steps: {steps}, time_budget: 10m}}
budgets: [1MiB]
"""
TABLES = ["trials.parquet", "steps.parquet", "anatomy.parquet", "frontier.parquet"]
FILES = [*TABLES, "report.md", "report.html", "frontier.png", "run.json"]


def command(config: Path, folder: Path, *options: str) -> list[str]:
    """The sweep's command line."""
    return [
        sys.executable,
        "-m",
        "orchestrator.sweep",
        str(config),
        "--output",
        str(folder),
        *options,
    ]


def sweep(config: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A whole sweep as a person runs it."""
    return subprocess.run(
        command(config, folder, *options),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def written(folder: Path) -> dict[str, int]:
    """When each record was written, in nanoseconds."""
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "records").iterdir())}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of six tiny trials."""
    path = tmp_path_factory.mktemp("sweep") / "tiny.yaml"
    path.write_text(CONFIG.format(micro_batches=[1, 2, 4], steps=2))
    return path


@pytest.fixture(scope="module")
def first(config: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The six trials measured, and where; not to be written to."""
    folder = config.parent / "first"
    return sweep(config, folder), folder


@pytest.fixture
def measured(first: tuple[subprocess.CompletedProcess[str], Path], tmp_path: Path) -> Path:
    """A copy of that run folder for a test of its own."""
    return Path(shutil.copytree(first[1], tmp_path / "run"))


def test_a_sweep_ends_with_its_frontier_and_files(
    first: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, folder = first
    assert done.returncode == 0, done.stderr
    assert "6 trials, 0 ruled out, on no GPU" in done.stdout
    assert "[6/6]" in done.stdout
    assert "Frontier" in done.stdout
    assert "Best in each budget" in done.stdout
    for name in FILES:
        assert (folder / name).stat().st_size > 0
        assert name == "run.json" or str(folder / name) in done.stdout
    records = RunFolder(folder).records()
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    assert len(records) == 6
    assert "Traceback" not in done.stderr


def test_a_second_run_keeps_every_row_and_names_torn_and_foreign_files(
    config: Path, measured: Path
) -> None:
    record = sorted((measured / "records").iterdir())[0]
    torn, foreign = (measured / "records" / name for name in ("torn.json", "foreign.json"))
    torn.write_text(record.read_text()[:100])
    foreign.write_text(json.dumps({"somebody": "else's"}))
    contents = {path: path.read_text() for path in (torn, foreign)}
    before = written(measured)
    done = sweep(config, measured)
    assert done.returncode == 0, done.stderr
    assert "6 trials were measured before and are kept" in done.stdout
    assert "Frontier" in done.stdout
    assert written(measured) == before
    for path, content in contents.items():
        assert f"{path} is not a record of this program; it is left alone" in done.stdout
        assert path.read_text() == content
    assert len(RunFolder(measured).records()) == 6


def test_fresh_measures_everything_again(measured: Path, tmp_path: Path) -> None:
    before = written(measured)
    fewer = tmp_path / "fewer.yaml"
    fewer.write_text(CONFIG.format(micro_batches=[1, 2], steps=2))
    done = sweep(fewer, measured, "--fresh")
    assert done.returncode == 0, done.stderr
    after = written(measured)
    assert len(after) == 4
    assert after.keys() < before.keys(), "what is not in the plan must not be in its report"
    assert all(after[name] > before[name] for name in after)


def test_a_driver_killed_in_mid_run_is_resumed(tmp_path: Path) -> None:
    config, folder = tmp_path / "tiny.yaml", tmp_path / "run"
    config.write_text(CONFIG.format(micro_batches=[1, 2, 4, 8], steps=50))
    with subprocess.Popen(
        command(config, folder), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert any(line.startswith("[2/8]") for line in driver.stdout)
        driver.kill()
    finished = RunFolder(folder).records()
    before = written(folder)
    assert 2 <= len(finished) < 8
    (slot_parent,) = {record.measurements["slot_pid"] for record in finished.values()}
    assert has_ended(slot_parent), "the killed driver's slot lives on"

    done = sweep(config, folder, "--resume")
    assert done.returncode == 0, done.stderr
    records, after = RunFolder(folder).records(), written(folder)
    assert f"{len(finished)} trials were measured before and are kept" in done.stdout
    assert len(records) == 8
    assert {record.outcome for record in records.values()} == {Outcome.OK}
    assert {f"{name}.json": after[f"{name}.json"] for name in finished} == {
        f"{name}.json": before[f"{name}.json"] for name in finished
    }


def test_a_folder_in_use_is_refused(config: Path, measured: Path) -> None:
    before = written(measured)
    with open(measured / "lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = sweep(config, measured, "--fresh")
    assert done.returncode == 1
    assert done.stderr.strip() == f"{measured} is in use by another running sweep"
    assert written(measured) == before


def test_there_must_be_a_run_to_resume(config: Path, tmp_path: Path) -> None:
    done = sweep(config, tmp_path / "nothing", "--resume")
    assert done.returncode == 2
    assert done.stderr.strip() == f"{tmp_path / 'nothing'}: no run to resume"
    assert not (tmp_path / "nothing").exists()
