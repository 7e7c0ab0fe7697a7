"""The folder through which a chaos run tells its cluster's processes which trials to strike."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """What a trial's child does in a phase: ``act``, of ``tests.support.faults``, or "announce"."""

    phase: str
    act: str
    always: bool = False
    """At every attempt of the trial, not only at the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """A child that stands still in its phase until it is released, and its parents."""

    trial_id: str
    node: str
    child: int
    parent: int
    actor: int


class Control:
    """Small files, each moved into place. One trial announces at a time; ``turn`` has its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def here(cls) -> Self:
        """The one that this process was started under."""
        return cls(Path(os.environ["CHAOS_CONTROL"]))

    def clear(self) -> None:
        """Forget the last sweep; every node's GPU is well."""
        for name in ("armed", "starts", "gpus"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            for path in (self.folder / name).iterdir():
                path.unlink()
        for name in ("turn", "announced", "clock"):
            (self.folder / name).unlink(missing_ok=True)

    def arm(self, trial_id: str, arm: Arm) -> None:
        """Before the sweep begins."""
        self._write(f"armed/{trial_id}", asdict(arm))

    def armed(self, trial_id: str) -> Arm | None:
        """What the trial's child is to do."""
        found = self._read(f"armed/{trial_id}")
        return Arm(**found) if found else None

    def announce(self, announcement: Announcement, *, always: bool) -> None:
        """Wait for the turn, announce, and stand still until released."""
        while not self._takes_turn(announcement.trial_id):
            time.sleep(0.02)
        if self.armed(announcement.trial_id) is None:  # disarmed meanwhile
            self.next_turn(announcement.trial_id)
            return
        if not always:
            (self.folder / f"armed/{announcement.trial_id}").unlink()
        self._write("announced", asdict(announcement))
        while (self.folder / "announced").exists():
            time.sleep(0.02)

    def announced(self) -> Announcement | None:
        """The child that stands still now."""
        found = self._read("announced")
        return Announcement(**found) if found else None

    def release(self) -> None:
        """Let it go on, if it lives. No other child announces before ``next_turn``."""
        (self.folder / "announced").unlink(missing_ok=True)

    def next_turn(self, trial_id: str) -> None:
        """The trial's announcement has had its effect."""
        if self._read("turn") == trial_id:
            (self.folder / "turn").unlink()

    def disarm(self) -> None:
        """Strike no further trial."""
        for path in (self.folder / "armed").iterdir():
            path.unlink()

    def started(self, trial_id: str, node: str) -> None:
        """A child begins. It waits while another stands still, so that trials are left for all."""
        with open(self.folder / "starts" / trial_id, "a") as file:
            file.write(json.dumps([time.time(), node]) + "\n")
        while (self.folder / "announced").exists():
            time.sleep(0.02)

    def starts(self, trial_id: str) -> list[tuple[float, str]]:
        """When (Unix time) and on which node the trial's children began."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "starts" / trial_id).read_text().splitlines()
            return [(at, node) for at, node in map(json.loads, lines)]
        return []

    def nodes_started(self) -> set[str]:
        """The nodes on which any trial has begun."""
        return {
            node
            for path in (self.folder / "starts").iterdir()
            for _, node in self.starts(path.name)
        }

    def set_gpu(self, node: str, state: str) -> None:
        """The node's simulated GPU: "" is fit, "foreign" holds another process's memory, "busy" has
        another process beside the trial's, "lost" answers nothing, "dead" answers NVML alone."""
        self._write(f"gpus/{node}", state)

    def gpu(self, node: str) -> str:
        """What ``set_gpu`` said."""
        return str(self._read(f"gpus/{node}") or "")

    def shared_since(self, node: str) -> float:
        """Unix time since when another process uses the node's GPU; infinite if none does."""
        return (
            (self.folder / f"gpus/{node}").stat().st_mtime
            if self.gpu(node) == "foreign"
            else float("inf")
        )

    def set_clock(self, seconds: float) -> None:
        """How far the driver's wall clock is ahead."""
        self._write("clock", seconds)

    def clock(self) -> float:
        """What ``set_clock`` said."""
        return float(self._read("clock") or 0.0)

    def _takes_turn(self, trial_id: str) -> bool:
        if self._read("turn") == trial_id:  # a repeated attempt of the one that is being dealt with
            return True
        mine = self.folder / f"turn-{os.getpid()}"
        mine.write_text(json.dumps(trial_id))
        with contextlib.suppress(FileExistsError):
            os.link(mine, self.folder / "turn")
        mine.unlink()
        return bool(self._read("turn") == trial_id)

    def _write(self, name: str, content: Any) -> None:
        partial = self.folder / f"{name}.{os.getpid()}"
        partial.write_text(json.dumps(content))
        partial.replace(self.folder / name)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None


def environment(folder: Path, node: str, *, trials: str, code: Path) -> Mapping[str, str]:
    """The variables that make a process of a node ("": the driver's) part of the chaos run."""
    stand_in = code / "tests/chaos/standin"
    return {
        "CHAOS_CONTROL": str(folder),
        "CHAOS_NODE": node,
        "CHAOS_TRIALS": trials,
        "PYTHONPATH": os.pathsep.join((str(stand_in), str(code))),
    }
