"""A slot and its parent as real processes: who hangs is killed, and its trial is not to blame."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.infrastructure import DISK_FULL, NOT_STARTED, SLOT_UNRESPONSIVE
from jobs.isolation import prewarm
from jobs.isolation.channel import HEARTBEAT_SECONDS, Channel, beat
from jobs.isolation.slot import Limits, Slot, SlotDiedError
from jobs.record import Outcome
from jobs.spec import TrialSpec, to_json
from tests.conftest import build_tiny_spec
from tests.support import light_parent
from tests.support.clock import Clock
from tests.support.commands import ROOT
from tests.support.faults import Announcement, has_ended, idle_child, parent_of, with_fault

LIMITS = Limits(start=120.0, silence=4.0, grace=30.0, end=5.0)
"""A parent beats every five seconds in a sweep, and every 0.2 seconds here."""


def trial(act: str = "end") -> TrialSpec:
    spec = build_tiny_spec()
    return replace(spec, choices={**spec.choices, "act": act})


@pytest.fixture
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which a trial's process writes its id when it begins."""
    file = tmp_path / "note"
    monkeypatch.setenv(light_parent.NOTE_VARIABLE, str(file))
    return file


@pytest.fixture
def slot(note: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slot]:
    monkeypatch.delenv(prewarm.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv(light_parent.HEARTBEAT_VARIABLE, "0.2")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(note.parent))
    with Slot(cpus=1, limits=LIMITS, parent_command=light_parent.COMMAND) as slot:
        slot.start()
        yield slot


def child_in(note: Path) -> int:
    """The process id of the trial that has begun."""
    while not (note.exists() and note.read_text()):
        time.sleep(0.02)
    return int(note.read_text())


# Parents that do not answer.


@pytest.mark.parametrize(
    ("sent", "reason", "rule"),
    [
        (signal.SIGSTOP, r"did not answer for 4 s \(it is stopped\)", SLOT_UNRESPONSIVE),
        (signal.SIGKILL, "ended", ""),
    ],
)
def test_parent_struck_during_a_trial_takes_it_along_and_is_replaced(
    sent, reason, rule, note, slot
):
    struck = slot.parent_pid

    def strike() -> None:
        child_in(note)
        os.kill(struck, sent)

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(SlotDiedError, match=reason) as died:
        slot.run(trial("hang"), timeout_seconds=600.0)
    thread.join()
    assert died.value.rule == rule
    assert has_ended(struck)
    assert has_ended(int(note.read_text()))
    record = slot.run(trial(), 60.0)
    assert record.outcome is Outcome.OK
    assert record.provenance.slot_pid == slot.parent_pid != struck


def test_processes_that_a_trial_forks_end_at_once():
    code = (
        "import os, signal; from jobs.isolation.child_main import answer_when_time_is_up\n"
        "answer_when_time_is_up(); forked = os.fork()\n"
        "os.kill(forked or os.getpid(), signal.SIGTERM if not forked else 0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert int(ended.stdout) == -signal.SIGTERM


def test_trial_that_hangs_ends_with_all_its_processes(slot, tmp_path):
    announcement = Announcement(tmp_path / "announcement")
    hanging = "hang_with_stubborn_grandchild"
    library = tmp_path / "inductor" / "incomplete.so"
    library.parent.mkdir()
    library.touch()
    os.utime(library, (2**32, 2**32))  # while the trial runs
    record = slot.run(with_fault(trial(), hanging, announce=announcement.path), 1.0)
    pids = announcement.wait()
    assert not library.exists()
    assert (record.outcome, record.phase) == (Outcome.TIMED_OUT, "model")
    assert record.reason == "no result after 1 s, in phase model"
    assert has_ended(pids["child"])
    assert has_ended(pids["grandchild"])
    assert slot.run(trial(), 60.0).outcome is Outcome.OK
    assert slot.parents_started == 1


def test_parent_that_never_says_hello_is_killed():
    limits = replace(LIMITS, start=0.5)
    with Slot(cpus=1, limits=limits, parent_command=("sleep", "600")) as slot:
        with pytest.raises(SlotDiedError, match=r"did not answer for 0\.5 s"):
            slot.start()
        assert slot.parent_pid is None


def test_closing_a_slot_with_a_stopped_parent_ends_it(slot):
    slot._limits = replace(LIMITS, end=0.5)
    stopped = slot.parent_pid
    os.kill(stopped, signal.SIGSTOP)
    slot.close()
    assert has_ended(stopped)


def test_stopped_parent_of_a_killed_owner_ends(note):
    owner = os.fork()
    if owner == 0:
        try:
            slot = Slot(cpus=1, limits=LIMITS, parent_command=light_parent.COMMAND)
            slot.start()
            note.write_text(str(slot.parent_pid))
            time.sleep(600)
        finally:
            os._exit(1)
    parent = child_in(note)
    os.kill(parent, signal.SIGSTOP)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    assert has_ended(parent)


# Parents and owners that are killed.

OWNER = """\
import json, sys
from jobs.isolation.slot import Slot
from jobs.spec import TrialSpec, from_json
from tests.support import light_parent
with Slot(cpus=1, parent_command=light_parent.COMMAND) as slot:
    slot.run(from_json(TrialSpec, json.load(open(sys.argv[1]))), timeout_seconds=600.0)
"""


def test_parent_killed_between_trials_is_replaced_by_the_next_run(slot, monkeypatch):
    killed = slot.parent_pid
    os.kill(killed, signal.SIGKILL)
    assert has_ended(killed)
    with monkeypatch.context() as patch:
        patch.setattr(slot, "start", lambda: None)  # as if it had been alive when looked for
        with pytest.raises(SlotDiedError):
            slot.run(trial(), 60.0)
    record = slot.run(trial(), 60.0)
    assert record.outcome is Outcome.OK
    assert slot.parents_started == 2
    assert record.provenance.slot_pid == slot.parent_pid != killed


def test_parent_of_a_killed_owner_ends_with_its_hanging_trial(tmp_path):
    announcement = Announcement(tmp_path / "announcement")
    hanging = "hang_with_stubborn_grandchild"
    spec = with_fault(trial(), hanging, announce=announcement.path)
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(to_json(spec)))
    with subprocess.Popen([sys.executable, "-c", OWNER, str(file)], cwd=ROOT) as owner:
        pids = announcement.wait()
        # The grandchild announced: its parent is the trial, whose parent is the slot's.
        parent = parent_of(pids["child"])
        owner.kill()
    assert all(has_ended(pid) for pid in (parent, pids["child"], pids["grandchild"]))


# Children that end before they have begun a trial.


def test_idle_child_killed_as_its_trial_comes_gives_it_to_another(slot, note):
    slot.run(trial(), 60.0)
    idle = idle_child(slot.parent_pid)
    # Stopped, it looks alive when the trial is given out, and dies without having read it.
    os.kill(idle, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (idle, signal.SIGKILL)).start()
    record = slot.run(trial(), 60.0)
    assert record.outcome is Outcome.OK
    assert int(note.read_text()) != idle


def test_trial_whose_processes_never_begin_is_repeated(monkeypatch):
    monkeypatch.setenv(light_parent.DIE_VARIABLE, "1")
    with Slot(cpus=1, limits=LIMITS, parent_command=light_parent.COMMAND) as slot:
        record = slot.run(trial(), 60.0)
    assert (record.outcome, record.rule) == (Outcome.SKIPPED, NOT_STARTED)
    assert record.reason.startswith("3 processes ended before the trial began")
    assert not record.outcome.is_final


def test_trial_with_an_endless_timeout_runs(slot):
    assert slot.run(trial(), math.inf).outcome is Outcome.OK
    assert slot.parents_started == 1


# Messages.


class BeatingParent:
    """The socket to a parent that says so often that it is alive, and then has a record."""

    def __init__(self, clock: Clock, beats: int) -> None:
        self.clock = clock
        self.lines = iter([b'{"alive": true}\n'] * beats + [b'{"outcome": "ok"}\n'])

    def settimeout(self, seconds: float) -> None:
        self.seconds = seconds

    def recv(self, size: int) -> bytes:
        self.clock.now += min(self.seconds, HEARTBEAT_SECONDS)
        if self.seconds < HEARTBEAT_SECONDS:
            raise TimeoutError
        return next(self.lines)


@pytest.mark.parametrize(
    ("silence", "allowed", "error"),
    [
        (HEARTBEAT_SECONDS + 1, 1e6, ""),
        (HEARTBEAT_SECONDS - 1, 1e6, "did not answer for 4 s"),
        (HEARTBEAT_SECONDS + 1, 99.0, "was alive, but had no record after 99 s"),
    ],
)
def test_parent_that_beats_is_waited_for_longer_than_its_silence(
    silence, allowed, error, monkeypatch
):
    clock = Clock()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", clock)
        channel = Channel(BeatingParent(clock, beats=100))
        raised = pytest.raises(TimeoutError, match=error) if error else contextlib.nullcontext()
        with raised:
            assert channel.receive(clock.now + allowed, silence) == {"outcome": "ok"}


def test_channel_without_a_reader_gives_up_on_a_long_message():
    ours, parents = socket.socketpair()
    channel = Channel(ours)
    with parents, pytest.raises(TimeoutError, match="did not read its next trial"):
        channel.send({"spec": "x" * 2**20}, time.monotonic() + 0.2)
    channel.close()


def test_owner_that_reads_nothing_blocks_no_heartbeat():
    ours, slots = socket.socketpair()
    for _ in range(2**14):
        beat(ours)
    assert slots.recv(18) == b'{"alive": true}\n{"', "no heartbeat is cut"
    slots.close()
    beat(ours)
    ours.close()


# Full disks: see tests/unit/jobs/isolation/test_full_disk.py for real ones.


def test_parent_without_room_is_not_the_trials_fault(monkeypatch):
    monkeypatch.setenv(light_parent.FULL_VARIABLE, "1")
    slot = Slot(cpus=1, limits=LIMITS, parent_command=light_parent.COMMAND)
    with slot, pytest.raises(SlotDiedError, match="No space left on device") as died:
        slot.run(trial(), 60.0)
    assert died.value.rule == DISK_FULL
