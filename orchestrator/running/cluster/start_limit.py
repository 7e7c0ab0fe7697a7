"""A bound on the wait for Ray to start or to be joined: at its end, this process ends.

While Ray registers with its raylet, its C++ code keeps Python's lock, the GIL. If the raylet waits
for a process that stands still, this wait has no end, and no thread of Python can run to end it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import subprocess
import sys
from collections.abc import Iterator

_REPORTER = """
import select, sys
_, seconds, late, ended = sys.argv
readable, _, _ = select.select([sys.stdin], [], [], float(seconds))
if not readable:
    sys.exit(late)
if not sys.stdin.read():
    sys.exit(ended)
"""
"""Prints a sentence after some seconds, or if its input ends empty before; its status is then 1."""
_REPORT_SECONDS = 2.0
"""How long this process goes on after that, so that the sentence comes before the end."""


@contextlib.contextmanager
def start_limit(seconds: float, sentence: str, *, ended: str) -> Iterator[None]:
    """End this process with the sentence and exit status 1 if the context takes too long.

    If this process ends within the context, the sentence ``ended`` is printed. Ray's C++ code may
    end this process, and its own words help no user.

    What the kernel ends together with this process ends, too: Ray's servers and prewarmed parents.
    """
    with open(os.devnull, "w") as nowhere, _reporter(seconds, sentence, ended) as reporter:
        # The timer is a thread in C: it needs no lock of Python's. What it prints is a traceback,
        # which helps no user.
        faulthandler.dump_traceback_later(seconds + _REPORT_SECONDS, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            reporter.communicate(b"over")
        if reporter.returncode == 1:  # it has said that this process ends
            os._exit(1)


@contextlib.contextmanager
def _reporter(seconds: float, late: str, ended: str) -> Iterator[subprocess.Popen[bytes]]:
    # -I and -S: neither the user's modules nor installed packages are looked for.
    command = [sys.executable, "-I", "-S", "-c", _REPORTER, str(seconds), late, ended]
    # Ctrl-C is for this process. A session of its own keeps it from the reporter.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
