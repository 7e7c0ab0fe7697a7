"""The guard: a small process that ends the processes that a killed driver leaves behind.

The kernel ends the driver's child processes, but not their descendants. Ray's agents and workers
notice only after some time that their raylet has ended. It takes longest while they start. A
stopped process never notices.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from jobs import self_process
from jobs.isolation.scratch import PREFIXES, remove_abandoned

VARIABLE = "ORCHESTRATOR_GUARDED_BY"
"""Environment variable with the name of the guard that ends a process after its driver."""
END_SECONDS = 10.0
"""How long the guard tries to end processes. One in uninterruptible sleep may take longer."""
_PAUSE_SECONDS = 0.05
_SETTLE_SECONDS = 2.0
"""Pause after a driver was killed. The kernel frees its memory first, and its locks after that."""
_MODULE = "orchestrator.running.orphans"


class Guard:
    """Ends every process that was started during ``marking``, and its descendants.

    That happens when this process ends.
    """

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Processes that are started during the context inherit the guard's name."""
        os.environ[VARIABLE] = self._name
        try:
            yield
        finally:
            del os.environ[VARIABLE]

    @contextlib.contextmanager
    def process(self) -> Iterator[None]:
        """The guard's process, until the end of the context or of this process."""
        command = self_process.command(_MODULE, self._name)
        # In a session of its own, the guard receives neither Ctrl-C nor the end of the terminal.
        guard = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard.communicate(b"over", timeout=2 * END_SECONDS)
            guard.kill()
            guard.wait()


@contextlib.contextmanager
def guard() -> Iterator[Guard]:
    """A guard for the time of the context. If it cannot be started, the driver works without."""
    with contextlib.ExitStack() as stack:
        started = Guard()
        with contextlib.suppress(OSError):  # the limit of processes is reached
            stack.enter_context(started.process())
        yield started


def is_guard(command_line: list[str]) -> bool:
    """Whether this is the command line of a guard's process."""
    return _MODULE in command_line


def end_all(name: str, seconds: float = END_SECONDS) -> None:
    """Kill every process that has inherited this guard's name."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        pids = list(_marked(f"{VARIABLE}={name}".encode()))
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def _marked(entry: bytes) -> Iterator[int]:
    """The living processes whose environment has this entry."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # Another user's process cannot be read, and one that has ended has no environment.
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def main() -> None:
    """Wait until the driver ends. Then kill its remaining processes, and remove its folders."""
    has_ended_well = sys.stdin.buffer.read() != b""
    end_all(sys.argv[1])
    if not has_ended_well:
        time.sleep(_SETTLE_SECONDS)
    for prefix in PREFIXES:
        remove_abandoned(prefix)


if __name__ == "__main__":
    main()
