"""One sweep under faults: its driver, the trial that a fault strikes, and what has to follow."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jobs.record import TrialRecord
from orchestrator.storage.layout import record_files
from orchestrator.storage.record_reader import read_record
from tests.chaos.arena import ADDRESS, CODE, ROOT, RUN, Arena
from tests.chaos.control import Announcement

WAIT_SECONDS = 400.0
"""Seconds within which whatever is waited for has to happen."""


class UnexpectedError(AssertionError):
    """A fault did not have the effect that it has to have."""


class Scene:
    """A sweep of ``config`` in a folder of its own, resumed as often as a fault ends its driver."""

    def __init__(self, arena: Arena, config: Path, name: str, *, log: str = "") -> None:
        self.arena = arena
        self.control = arena.control
        self.folder = RUN / name
        self.planted: dict[Path, bytes] = {}
        """Files of another program in the run folder, to be left alone."""
        self.config = config
        self.name = name
        self._log = ROOT / f"{log or name}.log"
        self._driver: subprocess.Popen[bytes] | None = None
        self.victim: Announcement
        """The trial that stands still, and that the fault strikes."""

    def start(self, *options: str) -> None:
        """Start the driver, as a user does."""
        command = [
            sys.executable,
            "-m",
            "orchestrator.sweep",
            str(self.config),
            "--address",
            ADDRESS,
        ]
        with open(self._log, "wb") as log:
            self._driver = subprocess.Popen(
                [*command, "--output", str(self.folder), "--time-budget", "1h", *options],
                cwd=CODE,
                env={**self.arena.environment("")},
                stdout=log,
                stderr=log,
            )

    def resume(self) -> None:
        """The same sweep goes on under a new driver."""
        self.start("--resume")

    def signal_driver(self, number: signal.Signals) -> None:
        """Send the driver a signal."""
        assert self._driver is not None
        self._driver.send_signal(number)

    def status(self) -> int | None:
        """The driver's exit status; None while it runs."""
        assert self._driver is not None
        return self._driver.poll()

    def ends(self, status: int, says: str = "") -> None:
        """Wait for the driver's end with this status, and ``says`` in what it printed."""
        self.wait(lambda: self.status() is not None, "the driver ends")
        found, said = self.status(), self.said()
        if found != status:
            raise UnexpectedError(f"the driver ended with {found}, not {status}:\n{said[-3000:]}")
        self.must(says in said, f"the driver did not say {says!r}:\n{said[-3000:]}")
        self.must("Traceback" not in said, f"the driver ended in a traceback:\n{said[-3000:]}")

    def said(self) -> str:
        """What the driver has printed."""
        return self._log.read_text(errors="replace")

    def says(self, before: str, words: str) -> None:
        """Wait until the driver says so, not counting what it had said before."""
        self.wait(lambda: words in self.said()[len(before) :], f"the driver says {words!r}")

    def release(self) -> None:
        """Let the trial go on, if it lives; no other yet."""
        self.control.release()

    def release_all(self) -> None:
        """Let every trial go on, and strike no other."""
        self.control.disarm()
        self.control.release()
        self.control.next_turn(self.victim.trial_id)

    def record(self, trial_id: str) -> TrialRecord | None:
        """The trial's record, if it has a final one."""
        path = self.folder / "records" / f"{trial_id}.json"
        found = read_record(path) if path.exists() else None
        return found if found is not None and found.outcome.is_final else None

    def finished(self) -> dict[Path, tuple[int, bytes]]:
        """The final records: when each was written, in nanoseconds, and its bytes."""
        found = {}
        for path in record_files(self.folder):
            record = read_record(path)
            if record is not None and record.outcome.is_final and path not in self.planted:
                found[path] = (path.stat().st_mtime_ns, path.read_bytes())
        return found

    def wait(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait for a condition. Raises UnexpectedError if it does not hold within ``seconds``."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise UnexpectedError(f"not within {seconds:g} s: {what}\n{self.said()[-3000:]}")
            time.sleep(0.05)

    def must(self, so: bool, otherwise: str) -> None:
        """Raises UnexpectedError with this reason unless ``so``."""
        if not so:
            raise UnexpectedError(otherwise)

    def give_up(self) -> None:
        """End the driver, whatever it does."""
        if self._driver is not None and self._driver.poll() is None:
            self._driver.kill()
            self._driver.wait()
