"""Real trials through a slot, good and faulty: one classified record each, and nobody takes anybody else along."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from jobs.isolation import prewarm
from jobs.isolation.slot import Slot, SlotDiedError
from jobs.record import Outcome, TrialRecord, record_from_json
from jobs.spec import Isolation, TrialSpec, to_json
from tests.conftest import build_tiny_spec
from tests.support.faults import Announcement, has_ended, parent_of, with_fault

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0

OWNER = """\
import json, sys
from jobs.isolation.slot import Slot
from jobs.spec import spec_from_json
with Slot(cpus=1) as slot:
    slot.run(spec_from_json(json.load(open(sys.argv[1]))), timeout_seconds=600.0)
"""


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    """One slot for the whole file; a test that ends its parent gets a new one, as a sweep does."""
    with Slot(cpus=1) as one:
        one.start()
        yield one


@pytest.fixture
def good() -> TrialSpec:
    """A trial that ends well."""
    return build_tiny_spec()


@pytest.fixture(scope="module")
def ok_before(slot: Slot) -> TrialRecord:
    """That trial's record from before every fault."""
    return slot.run(build_tiny_spec(), DEADLINE)


@pytest.fixture
def announcement(tmp_path: Path) -> Announcement:
    """Where a hanging trial says so."""
    return Announcement(tmp_path / "announcement")


def assert_unharmed(record: TrialRecord, before: TrialRecord) -> None:
    """Both ended well, with the same memory to the byte and the same losses."""
    assert record.outcome is Outcome.OK, f"{record.reason}\n{record.log}"
    assert (
        record.measurements["peak_allocated_bytes"] == before.measurements["peak_allocated_bytes"]
    )
    assert record.steps["loss"] == before.steps["loss"]


def waiting_child(slot: Slot) -> int:
    """The process that is forked for the slot's next trial, once the last one's has ended."""
    parent = psutil.Process(slot.parent_pid)
    end = time.monotonic() + DEADLINE
    while len(found := parent.children()) != 1 or has_ended(found[0].pid, seconds=0.5):
        assert time.monotonic() < end
    return found[0].pid


def test_trials_share_a_parent_and_no_process(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec, tmp_path: Path
) -> None:
    files = [tmp_path / f"{number}.json" for number in range(3)]
    records = [slot.run(with_fault(good, "note_pids", file=str(file)), DEADLINE) for file in files]
    pids = [json.loads(file.read_text()) for file in files]
    assert len({found["child"] for found in pids}) == 3
    assert {found["parent"] for found in pids} == {slot.parent_pid}
    assert {record.measurements["slot_pid"] for record in records} == {slot.parent_pid}
    for record in records:
        assert record.isolation == "fork"
        assert_unharmed(record, ok_before)


def test_an_ok_record_is_whole(slot: Slot, ok_before: TrialRecord, good: TrialSpec) -> None:
    assert slot.hello["unclean"] == ""
    assert ok_before.spec == good
    assert (ok_before.reason, ok_before.rule, ok_before.phase) == ("", "", "")
    assert ok_before.measurements["steps_counted"] == good.measure.steps
    assert {len(series) for series in ok_before.steps.values()} == {4}
    assert ok_before.environment == slot.hello["environment"]


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("kill", Outcome.CRASHED, "killed by SIGKILL"),
        ("segfault", Outcome.CRASHED, "killed by SIGSEGV"),
        ("abort", Outcome.CRASHED, "killed by SIGABRT"),
        ("raise_error", Outcome.FAILED, "ValueError: the fault that was asked for"),
        ("raise_memory_error", Outcome.HOST_OUT_OF_MEMORY, "MemoryError: no host memory left"),
        ("exit_silently", Outcome.CRASHED, "the process exited with status 3 and no result"),
    ],
)
def test_a_fault_is_one_classified_record(
    fault: str, outcome: Outcome, reason: str, slot: Slot, ok_before: TrialRecord, good: TrialSpec
) -> None:
    record = slot.run(with_fault(good, fault), DEADLINE)
    assert (record.outcome, record.phase) == (outcome, "model")
    assert reason in record.reason
    assert_unharmed(slot.run(good, DEADLINE), ok_before)


def test_an_exception_leaves_its_traceback(slot: Slot, good: TrialSpec) -> None:
    record = slot.run(with_fault(good, "raise_error"), DEADLINE)
    assert "in raise_error" in record.log


def test_a_missing_package_is_unsupported(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec
) -> None:
    spec = replace(good, recipe=replace(good.recipe, requires=("package:no_such_package",)))
    record = slot.run(spec, DEADLINE)
    assert (record.outcome, record.rule) == (Outcome.UNSUPPORTED, "package:no_such_package")
    assert record.reason == "the package no_such_package is not installed"
    assert_unharmed(slot.run(good, DEADLINE), ok_before)


def test_a_hanging_trial_times_out_with_all_its_processes(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec, announcement: Announcement
) -> None:
    spec = with_fault(good, "hang_with_stubborn_grandchild", announce=announcement.path)
    record = slot.run(spec, timeout_seconds=8.0)
    pids = announcement.wait()
    assert (record.outcome, record.phase) == (Outcome.TIMED_OUT, "model")
    assert record.reason == "no result after 8 s, in phase model"
    assert has_ended(pids["child"])
    assert has_ended(pids["grandchild"])
    assert_unharmed(slot.run(good, DEADLINE), ok_before)


def test_a_killed_trial_leaves_no_files(slot: Slot, good: TrialSpec, tmp_path: Path) -> None:
    note = tmp_path / "note"
    slot.run(with_fault(good, "note_scratch_and_die", file=str(note)), DEADLINE)
    scratch = Path(note.read_text())
    assert "orchestrator-slot-" in str(scratch)
    slot.run(good, DEADLINE)
    assert not scratch.exists()


def test_a_parent_killed_between_trials_is_replaced(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec
) -> None:
    slot.start()
    assert slot.parent_pid is not None
    killed, started = slot.parent_pid, slot.parents_started
    os.kill(killed, signal.SIGKILL)
    assert has_ended(killed)
    record = slot.run(good, DEADLINE)
    assert (slot.parents_started, record.measurements["slot_pid"]) == (
        started + 1,
        slot.parent_pid,
    )
    assert slot.parent_pid != killed
    assert_unharmed(record, ok_before)


def test_a_parent_that_dies_as_it_is_asked_is_replaced_by_the_next_run(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot.start()
    assert slot.parent_pid is not None
    os.kill(slot.parent_pid, signal.SIGKILL)
    assert has_ended(slot.parent_pid)
    with monkeypatch.context() as patch:
        patch.setattr(slot, "start", lambda: None)  # as if it had still been there when looked for
        with pytest.raises(SlotDiedError):
            slot.run(good, DEADLINE)
    assert_unharmed(slot.run(good, DEADLINE), ok_before)


def test_a_parent_killed_during_a_trial_takes_the_trial_along(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec, announcement: Announcement
) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            slot.run, with_fault(good, "hang", announce=announcement.path), DEADLINE
        )
        pids = announcement.wait()
        os.kill(pids["parent"], signal.SIGKILL)
        with pytest.raises(SlotDiedError, match="ended with status -9"):
            running.result()
    assert has_ended(pids["child"])
    assert_unharmed(slot.run(good, DEADLINE), ok_before)


def test_a_parent_whose_owner_is_killed_ends_with_its_hanging_trial(
    good: TrialSpec, announcement: Announcement, tmp_path: Path
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(
        json.dumps(
            to_json(with_fault(good, "hang_with_stubborn_grandchild", announce=announcement.path))
        )
    )
    with subprocess.Popen([sys.executable, "-c", OWNER, str(spec)], cwd=ROOT) as owner:
        pids = announcement.wait()
        # The grandchild announced: its parent is the trial, whose parent is the slot's.
        parent = parent_of(pids["child"])
        owner.kill()
    assert all(has_ended(pid) for pid in (parent, pids["child"], pids["grandchild"]))


def test_a_waiting_parent_is_taken_over_and_replaced_when_it_dies(good: TrialSpec) -> None:
    with prewarm.parents(cpus=1), Slot(cpus=1) as slot:
        assert prewarm.take_over(cpus=2) is None, "its threads would be too few"
        assert slot.run(good, DEADLINE).outcome is Outcome.OK
        pid = slot.parent_pid
        assert pid is not None
        assert "--door" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        assert prewarm.take_over(cpus=1) is None, "a second slot of the GPU starts its own"
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SlotDiedError, match="ended"):
            slot.run(with_fault(good, "kill"), DEADLINE)
        assert slot.parent_pid is None
    with prewarm.parents(cpus=1):
        (left,) = (
            child.pid for child in psutil.Process().children() if "--door" in child.cmdline()
        )
    assert has_ended(left), "nobody took it over"


def test_closing_a_slot_ends_its_parent_and_the_child_that_waits(good: TrialSpec) -> None:
    with Slot(cpus=1) as slot:
        slot.run(good, DEADLINE)
        pids = slot.parent_pid, waiting_child(slot)
    assert slot.parent_pid is None
    assert all(pid is not None and has_ended(pid, seconds=0) for pid in pids)


def test_a_child_that_waits_is_the_next_trials_and_its_waiting_nobodys(
    slot: Slot, ok_before: TrialRecord, good: TrialSpec, tmp_path: Path
) -> None:
    slot.run(good, DEADLINE)
    expected, begin = waiting_child(slot), time.monotonic()
    time.sleep(2.0)
    record = slot.run(with_fault(good, "note_pids", file=str(tmp_path / "pids")), DEADLINE)
    assert json.loads((tmp_path / "pids").read_text())["child"] == expected
    assert record.slot_seconds < time.monotonic() - begin - 0.5
    assert_unharmed(record, ok_before)


@pytest.mark.parametrize("isolation", ["fork", "fresh"])
def test_a_child_that_ended_while_it_waited_is_nobodys_result(
    isolation: Isolation, slot: Slot, ok_before: TrialRecord, good: TrialSpec
) -> None:
    slot.run(good, DEADLINE)
    os.kill(waited := waiting_child(slot), signal.SIGKILL)
    assert has_ended(waited)
    record = slot.run(replace(good, measure=replace(good.measure, isolation=isolation)), DEADLINE)
    assert record.isolation == isolation
    assert_unharmed(record, ok_before)


def test_a_fresh_process_measures_what_a_forked_one_does(
    slot: Slot, ok_before: TrialRecord
) -> None:
    record = slot.run(build_tiny_spec(isolation="fresh"), DEADLINE)
    assert record.isolation == "fresh"
    assert_unharmed(record, ok_before)


@pytest.mark.parametrize(
    ("fault", "outcome"), [("raise_error", Outcome.FAILED), ("kill", Outcome.CRASHED)]
)
def test_a_fault_in_a_fresh_process_is_classified_alike(
    fault: str, outcome: Outcome, slot: Slot
) -> None:
    record = slot.run(with_fault(build_tiny_spec(isolation="fresh"), fault), DEADLINE)
    assert (record.outcome, record.phase) == (outcome, "model")


def test_one_trial_without_a_slot_prints_its_record(
    ok_before: TrialRecord, good: TrialSpec, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"spec": to_json(good), "outcome": "ok"}))
    done = subprocess.run(
        [sys.executable, "-m", "jobs", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert_unharmed(record_from_json(json.loads(line)), ok_before)
    assert list(tmp_path.iterdir()) == [path]
