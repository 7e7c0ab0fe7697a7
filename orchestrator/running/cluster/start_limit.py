"""A time limit for starting or joining Ray. At the limit, this process ends.

While Ray registers with its raylet, its C++ code holds Python's lock, the GIL. If the raylet waits
for a stopped process, this never ends, and no Python thread can run to stop it.
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
"""Prints the sentence ``late`` after some seconds, or ``ended`` if its input ends empty before.

In both cases its exit status is 1.
"""
_REPORT_SECONDS = 2.0
"""How long this process goes on after the limit, so that the sentence is printed before its end."""


@contextlib.contextmanager
def start_limit(seconds: float, sentence: str, *, ended: str) -> Iterator[None]:
    """End this process with the sentence and exit status 1 if the context takes too long.

    If this process ends within the context, the sentence ``ended`` is printed. Ray's C++ code may
    end this process, and its own message helps no user. Ray's servers and the prewarmed parents end
    together with this process.
    """
    with open(os.devnull, "w") as nowhere, _reporter(seconds, sentence, ended) as reporter:
        # The timer is a thread in C, which does not need the GIL. The traceback that it prints
        # helps no user, so it is discarded.
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
    # In a session of its own, the reporter does not receive Ctrl-C.
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield process
