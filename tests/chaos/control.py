"""The folder through which a chaos run controls its cluster's processes: small JSON files.

armed/TRIAL    the fault of the trial's child: "phase"; "act", of ``tests.support.faults`` or "";
               "always": it meets every attempt of the trial, not only the first
still/TRIAL    the child that stands still there, until the file is removed
starts/TRIAL   when and on which node the trial's children began, a line for each
gpus/NODE      the state of the node's simulated GPU: "" is fit, "foreign" holds another process's
               memory, "busy" has another process beside the trial's, "lost" answers nothing, "dead"
               answers NVML alone
looks          the processes that read the memory of a GPU with others' in use, a line for each time
clock          how many seconds the driver's wall clock is ahead
"""

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Victim:
    """A child that stands still, and its parents."""

    trial_id: str
    node: str
    child: int
    parent: int
    actor: int


class Control:
    """The folder; in a process of the cluster, the one that it was started under."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(os.environ["CHAOS_CONTROL"])

    def clear(self) -> None:
        """Forget the last sweep; every node's GPU is well."""
        for name in ("armed", "still", "starts", "gpus"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in (self.folder / name).iterdir():
                path.unlink()
        self.write("clock", 0.0)
        (self.folder / "looks").write_text("")

    def looked(self) -> None:
        """This process reads the memory of a GPU with another process's in use."""
        with open(self.folder / "looks", "a") as file:
            file.write(f"{os.getpid()}\n")

    def looks(self, pid: int) -> int:
        """How often a process has done so."""
        return (self.folder / "looks").read_text().split().count(str(pid))

    def write(self, name: str, content: Any) -> None:
        partial = self.folder / f"partial.{os.getpid()}"
        partial.write_text(json.dumps(content))
        partial.replace(self.folder / name)

    def read(self, name: str) -> Any:
        """What a file holds; None if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return json.loads((self.folder / name).read_text())
        return None

    def stand_still(self, victim: Victim, *, always: bool) -> None:
        """Wait for the turn, and stand still until released."""
        armed = self.folder / "armed" / victim.trial_id
        still = self.folder / "still" / victim.trial_id
        # One after another; the kernel passes the lock on when a child is killed.
        with open(self.folder / "turn", "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if not armed.exists():  # disarmed meanwhile
                return
            if not always:
                armed.unlink()
            self.write(f"still/{victim.trial_id}", asdict(victim))
            while still.exists():
                time.sleep(0.02)

    def victim(self) -> Victim | None:
        for path in (self.folder / "still").iterdir():
            if (found := self.read(f"still/{path.name}")) is not None:
                return Victim(**found)
        return None

    def release_all(self) -> None:
        """Let every trial go on, and strike no other."""
        for name in ("armed", "still"):
            for path in (self.folder / name).iterdir():
                path.unlink(missing_ok=True)

    def started(self, trial_id: str, node: str) -> None:
        """A child begins. It waits while another stands still, so that trials are left for all."""
        with open(self.folder / "starts" / trial_id, "a") as file:
            file.write(json.dumps([time.time(), node]) + "\n")
        while self.victim() is not None:
            time.sleep(0.02)

    def starts(self, trial_id: str) -> list[tuple[float, str]]:
        """When (Unix time) and on which node the trial's children began."""
        path = self.folder / "starts" / trial_id
        lines = path.read_text().splitlines() if path.exists() else ()
        return [(at, node) for at, node in map(json.loads, lines)]
