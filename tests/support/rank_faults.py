"""Faults of one rank of a trial of two: how each must end, and that nothing is left of it."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.isolation.slot import Slot
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from tests.support.faults import STRIKE, has_ended, idle_child


@dataclass(frozen=True, slots=True)
class RankFault:
    """What strikes a rank as it enters a phase, and the record that the trial must then have."""

    phase: str
    rank: int
    fault: str
    """Of ``tests.support.faults``."""
    outcome: Outcome
    reason: str
    """What the reason says after the rank."""
    still: str = ""
    """What the reason says of the rank's process."""
    is_named: bool = True
    """Whether the reason names the rank; not if both wait for each other."""

    @property
    def name(self) -> str:
        return f"{self.fault} of rank {self.rank} in {self.phase}"

    def strike(self, spec: TrialSpec) -> TrialSpec:
        """A trial of two ranks with this fault."""
        choices = {**spec.choices, STRIKE: f"{self.rank} {self.phase} {self.fault}"}
        return replace(spec, choices=choices)

    def problem_of(self, record: TrialRecord) -> str:
        """What is wrong with the trial's record; empty if nothing is."""
        if self.outcome is Outcome.OK:
            return "" if record.outcome is Outcome.OK else record.reason
        begin = f"rank {self.rank}{self.still}: " if self.is_named else ""
        is_right = (record.outcome, record.phase) == (self.outcome, self.phase)
        is_right &= record.reason.startswith(begin) and self.reason in record.reason
        return "" if is_right else f"{record.outcome} in {record.phase}: {record.reason}"


KILLED = (Outcome.CRASHED, "killed by SIGKILL")
LATE = (Outcome.TIMED_OUT, "no result after")
STOPPED = (*LATE, " (it is stopped)")
FAULTS = (
    RankFault("context", 1, "hang", *LATE),  # it never arrives at the rendezvous
    RankFault("context", 0, "stop", *STOPPED),
    RankFault("rendezvous", 0, "kill", *KILLED),
    RankFault("rendezvous", 1, "kill", *KILLED),
    RankFault("rendezvous", 1, "take_port", Outcome.OK, ""),
    RankFault("model", 0, "kill", *KILLED),
    RankFault("model", 1, "segfault", Outcome.CRASHED, "SIGSEGV"),
    RankFault("model", 1, "stop", *STOPPED),
    RankFault("first_step", 1, "raise_device_oom", Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
    RankFault("first_step", 0, "raise_memory_error", Outcome.HOST_OUT_OF_MEMORY, "no host memory"),
    RankFault("first_step", 1, "raise_error", Outcome.FAILED, "ValueError: the fault"),
    RankFault("first_step", 1, "raise_disk_full", Outcome.SKIPPED, "states.bin"),
    RankFault("warm_up", 0, "kill", *KILLED),
    RankFault("warm_up", 1, "hang", *LATE),
    RankFault("warm_up", 1, "exit_well", Outcome.CRASHED, "status 0"),
    RankFault("warm_up", 0, "leave_a_child", *KILLED),
    RankFault("steps", 1, "abort", Outcome.CRASHED, "SIGABRT"),
    RankFault("steps", 0, "exit_silently", Outcome.CRASHED, "status 3"),
    RankFault("steps", 1, "stop", *STOPPED),
    RankFault("evaluate", 1, "kill", *KILLED),
    RankFault("evaluate", 0, "raise_device_oom", Outcome.OUT_OF_MEMORY, "CUDA out of memory"),
)


def left_of(slot: Slot, folder: Path) -> list[str]:
    """What is left of the trials of a slot with these temporary files, once the next has ended, but
    for the process that waits for the one after: processes and files."""
    assert slot.parent_pid is not None
    kept = {slot.parent_pid, idle_child(slot.parent_pid)}
    left = [f"process {pid}" for pid in processes_of(folder) - kept if not has_ended(pid)]
    files = {file.name.partition("-")[0] for own in folder.iterdir() for file in own.iterdir()}
    return left + sorted(files - {"child"})


def processes_of(folder: Path) -> set[int]:
    """Those that were started with this folder for their temporary files, and their children."""
    mark = f"TMPDIR={folder}".encode()
    pids = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or it has ended
            if mark in (process / "environ").read_bytes().split(b"\0"):
                pids.add(int(process.name))
    return pids
