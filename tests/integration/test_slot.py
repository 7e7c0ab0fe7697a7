"""Real trials through a slot, good and faulty: one classified record each, and no other harmed."""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from tests.conftest import build_tiny_spec
from tests.support.faults import has_ended, idle_child, with_fault

TIMEOUT = 120.0


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One slot for the whole file, because a parent takes ten seconds to preload.

    Its first parent is a prewarmed one. A test that ends the parent gets a new one, as in a sweep.
    """
    with prewarm.parents(cpus=1), Slot(cpus=1) as slot:
        slot.start()
        yield slot


@pytest.fixture
def good() -> TrialSpec:
    """A trial that ends well."""
    return build_tiny_spec()


@pytest.fixture(scope="module")
def ok_before(slot: Slot) -> TrialRecord:
    """That trial's record from before every fault."""
    return slot.run(build_tiny_spec(), TIMEOUT)


def assert_unharmed(record: TrialRecord, before: TrialRecord) -> None:
    """Both ended well, with the same memory to the byte and the same losses."""
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.provenance.log}"
    peak = record.measurements["peak_allocated_bytes"]
    assert peak == before.measurements["peak_allocated_bytes"]
    assert record.steps["loss"] == before.steps["loss"]


# A prewarmed parent.


def test_prewarmed_parent_is_taken_over_once_and_for_its_cores(slot):
    assert slot.parent_pid is not None
    arguments = Path(f"/proc/{slot.parent_pid}/cmdline").read_text().split("\0")
    assert "--socket" in arguments
    assert prewarm.take_over(cpus=2) is None, "it has another number of threads"
    assert prewarm.take_over(cpus=1) is None, "a second slot starts a parent of its own"


def test_prewarmed_parent_that_no_slot_took_over_is_ended(monkeypatch):
    monkeypatch.delenv(prewarm.FOLDER_VARIABLE, raising=False)
    this = psutil.Process()
    before = {child.pid for child in this.children()}
    with prewarm.parents(cpus=1):
        (unused,) = {child.pid for child in this.children()} - before
    assert has_ended(unused)


# Trials, good and faulty.


def test_slot_runs_each_trial_in_a_process_of_its_own(slot, ok_before, good, tmp_path):
    files = [tmp_path / f"{number}.json" for number in range(3)]
    records = [slot.run(with_fault(good, "note_pids", file=str(file)), TIMEOUT) for file in files]
    pids = [json.loads(file.read_text()) for file in files]
    assert len({noted["child"] for noted in pids}) == 3
    assert {noted["parent"] for noted in pids} == {slot.parent_pid}
    for record in records:
        assert (record.provenance.slot_pid, record.provenance.isolation) == (
            slot.parent_pid,
            "fork",
        )
        assert_unharmed(record, ok_before)


FAULTS = {
    "kill": (Outcome.CRASHED, "killed by SIGKILL"),
    "segfault": (Outcome.CRASHED, "killed by SIGSEGV"),
    "abort": (Outcome.CRASHED, "killed by SIGABRT"),
    "raise_error": (Outcome.FAILED, "ValueError: the fault that was asked for"),
    "raise_memory_error": (Outcome.HOST_OUT_OF_MEMORY, "MemoryError: no host memory left"),
    "exit_silently": (Outcome.CRASHED, "the process exited with status 3 and no result"),
}


def test_slot_classifies_faults_and_runs_the_next_trial_unharmed(slot, ok_before, good):
    for fault, (outcome, reason) in FAULTS.items():
        record = slot.run(with_fault(good, fault), TIMEOUT)
        assert (record.outcome, record.phase) == (outcome, "model")
        assert reason in record.reason
        if outcome is Outcome.FAILED:
            assert "in raise_error" in record.provenance.log, "the traceback is kept"
    assert_unharmed(slot.run(good, TIMEOUT), ok_before)


def test_trial_that_is_late_keeps_what_it_has_measured(slot, ok_before):
    measure = replace(ok_before.spec.measure, steps=1_000_000, relative_error=0.0)
    # A busy machine may take long to reach the counted steps.
    for enough in (5, 20, 80):
        record = slot.run(replace(ok_before.spec, measure=measure), float(enough))
        assert record.outcome is Outcome.TIMED_OUT
        if record.phase == "steps":
            break
    assert record.reason == f"no result after {enough} s, in phase steps"
    assert record.steps["step_seconds"]
    assert record.measurements["cpu_step_peak_bytes"] > 0
    assert "samples_per_second" not in record.measurements


def test_slot_removes_the_files_of_a_killed_trial(slot, good, tmp_path):
    note = tmp_path / "note"
    slot.run(with_fault(good, "note_scratch_and_die", file=str(note)), TIMEOUT)
    scratch = Path(note.read_text())
    assert "orchestrator-slot-" in str(scratch)
    slot.run(good, TIMEOUT)
    assert not scratch.exists()


# The child that is forked ahead, and fresh processes.


def test_idle_child_runs_the_next_trial_and_its_wait_costs_nothing(slot, ok_before, good, tmp_path):
    slot.run(good, TIMEOUT)
    expected = idle_child(slot.parent_pid)
    begin = time.monotonic()
    time.sleep(1.0)
    record = slot.run(with_fault(good, "note_pids", file=str(tmp_path / "pids")), TIMEOUT)
    assert json.loads((tmp_path / "pids").read_text())["child"] == expected
    assert record.slot_seconds < time.monotonic() - begin - 0.5
    assert_unharmed(record, ok_before)


def test_idle_child_that_has_ended_is_replaced(slot, ok_before, good):
    slot.run(good, TIMEOUT)
    child = idle_child(slot.parent_pid)
    os.kill(child, signal.SIGKILL)
    assert has_ended(child)
    assert_unharmed(slot.run(good, TIMEOUT), ok_before)


def test_fresh_process_measures_what_a_forked_one_does(slot, ok_before):
    record = slot.run(build_tiny_spec(isolation="fresh"), TIMEOUT)
    assert record.provenance.isolation == "fresh"
    assert_unharmed(record, ok_before)
