"""One sweep under faults: its driver, the trial that a fault strikes, and what has to follow."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from jobs.record import TrialRecord
from orchestrator.storage.record_reader import read_record
from tests.chaos.arena import ADDRESS, CODE, ROOT, RUN, Arena
from tests.chaos.control import Victim

WAIT_SECONDS = 400.0
"""Seconds within which whatever is waited for has to happen."""


class UnexpectedError(AssertionError):
    """A fault did not have the effect that it has to have."""


class Scene:
    """A sweep of ``config`` in a folder of its own, resumed as often as a fault ends its driver."""

    def __init__(self, arena: Arena, config: Path, name: str, *, log: str = "") -> None:
        self.arena = arena
        self.control = arena.control
        self.config = config
        self.name = name
        self.folder = RUN / name
        self.planted: dict[Path, bytes] = {}
        """Files of another program in the run folder, to be left alone."""
        self._log = ROOT / f"{log or name}.log"
        self.driver: subprocess.Popen[bytes]
        self.victim: Victim
        """The trial that stands still, and that the fault strikes."""

    def start(self, *options: str) -> None:
        verb = [sys.executable, "-m", "orchestrator.sweep", str(self.config), "--address", ADDRESS]
        with open(self._log, "wb") as log:
            self.driver = subprocess.Popen(
                [*verb, "--output", str(self.folder), "--time-budget", "1h", *options],
                cwd=CODE,
                env=self.arena.environment(),
                stdout=log,
                stderr=log,
            )

    def resume(self) -> None:
        self.start("--resume")

    def ends(self, status: int, says: str = "") -> None:
        """Wait for the driver's end with this status, and ``says`` in what it printed."""
        self.wait(lambda: self.driver.poll() is not None, "the driver ends")
        said = self.said()
        if self.driver.returncode != status or says not in said or "Traceback" in said:
            wanted = f"{status} and {says!r}"
            raise UnexpectedError(
                f"the driver ended with {self.driver.returncode}, not {wanted}:\n{said[-3000:]}"
            )

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, words: str, before: str = "") -> None:
        """Wait until the driver says so, not counting what it had said before."""
        self.wait(lambda: words in self.said()[len(before) :], f"the driver says {words!r}")

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver.wait()

    def release(self) -> None:
        """Let the trial go on, if it lives."""
        (self.control.folder / "still" / self.victim.trial_id).unlink(missing_ok=True)

    def record(self, trial_id: str) -> TrialRecord | None:
        """The trial's record, if it has a final one."""
        path = self.folder / "records" / f"{trial_id}.json"
        found = read_record(path) if path.exists() else None
        return found if found is not None and found.outcome.is_final else None

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition. Raises UnexpectedError if it does not hold in ``WAIT_SECONDS``."""
        end = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise UnexpectedError(f"not in time: {what}\n{self.said()[-3000:]}")
            time.sleep(0.05)
