"""The guard: a small process beside the driver, for what the driver cannot do itself.

It ends what a killed driver leaves behind: Ray's agents and workers notice late that their raylet
has ended, and a stopped process never does. It also speaks for a driver that stands still: while
Ray starts, its C++ code holds Python's lock, the GIL, also while it waits for a stopped process.
"""

import contextlib
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from jobs import self_process
from jobs.isolation.scratch import PREFIXES, remove_abandoned

VARIABLE = "ORCHESTRATOR_GUARDED_BY"
"""Environment variable with the name of the guard that ends a process after its driver."""
END_SECONDS = 10.0
"""How long to try to end processes. One in uninterruptible sleep may take longer."""
_SETTLE_SECONDS = 2.0
"""Two pauses: after a driver was killed, because the kernel frees its memory first and its locks
after that; and after a limit, so that the guard's sentence is printed before the driver ends."""
_MODULE = "orchestrator.running.guard"


class Guard:
    """The driver's side of the guard. Without a process, it only marks what is started."""

    def __init__(self, process: subprocess.Popen[bytes] | None, name: str) -> None:
        self._process = process
        self._name = name

    @contextlib.contextmanager
    def marking(self) -> Iterator[None]:
        """Processes that are started during the context, and their descendants, get the mark."""
        os.environ[VARIABLE] = self._name
        try:
            yield
        finally:
            del os.environ[VARIABLE]

    def end_marked(self) -> None:
        end_all(self._name)

    @contextlib.contextmanager
    def limit(self, seconds: float, late: str, *, ended: str) -> Iterator[None]:
        """End this process with the sentence ``late`` and status 1 if the context takes longer. The
        guard prints ``ended`` if Ray's C++ code ends it, because Ray's message helps no user."""
        self.tell({"seconds": seconds, "late": late, "ended": ended})
        give_up_at = time.monotonic() + seconds
        with open(os.devnull, "w") as nowhere:
            # The timer is a thread in C, which does not need the GIL. Its traceback helps no user.
            faulthandler.dump_traceback_later(seconds + _SETTLE_SECONDS, exit=True, file=nowhere)
            try:
                yield
            finally:
                faulthandler.cancel_dump_traceback_later()
                self.tell({})
        if time.monotonic() > give_up_at:  # the guard has said that this process ends
            os._exit(1)

    def tell(self, message: Any) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # the guard was killed; the driver works without
                self._process.stdin.write(json.dumps(message).encode() + b"\n")


@contextlib.contextmanager
def guarded() -> Iterator[Guard]:
    """A guard for the time of the context. If it cannot be started, the driver works without."""
    name = uuid.uuid4().hex
    try:
        # In a session of its own, it receives neither Ctrl-C nor the end of the terminal.
        process = subprocess.Popen(
            self_process.command(_MODULE, name),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # the limit of processes is reached
        yield Guard(None, name)
        return
    guard = Guard(process, name)
    try:
        yield guard
    finally:
        guard.tell(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=2 * END_SECONDS)
        process.kill()
        process.wait()


def end_at_once() -> NoReturn:
    """End this process with status 1, and its descendants except guards, which end the rest."""
    import psutil  # not before: a dry run needs no guard

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if _MODULE not in process.cmdline():
                process.kill()
    os._exit(1)


def end_all(name: str, seconds: float = END_SECONDS) -> None:
    """Kill every process with the mark of this name."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        pids = list(_marked(f"{VARIABLE}={name}".encode()))
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _marked(entry: bytes) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # Another user's process cannot be read, and one that has ended has no environment.
        with contextlib.suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def main() -> None:
    """Wait until the driver ends. Then kill its remaining processes, and remove its folders."""
    has_ended_well = _await_end()
    end_all(sys.argv[1])
    if not has_ended_well:
        time.sleep(_SETTLE_SECONDS)
    for prefix in PREFIXES:
        remove_abandoned(prefix)


def _await_end() -> bool:
    """Whether the driver has ended by itself. Of its messages a mapping begins a limit, an empty
    one ends it, and None says that its context ends."""
    limit: dict[str, Any] = {}
    with open(0, "rb", buffering=0) as messages:
        while True:
            readable, _, _ = select.select([messages], [], [], limit.get("seconds"))
            if not readable:
                print(limit["late"], file=sys.stderr, flush=True)
                limit = {}
                continue
            line = messages.readline()
            if not line:
                if limit:
                    print(limit["ended"], file=sys.stderr, flush=True)
                return False
            message = json.loads(line)
            if message is None:
                return True
            limit = message


if __name__ == "__main__":
    main()
