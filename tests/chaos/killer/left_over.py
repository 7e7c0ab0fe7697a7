"""The processes that a struck sweep leaves behind: waited for, named and ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import psutil

from tests.chaos.killer.victims import with_environment

END_SECONDS = 20.0
"""How long a sweep's processes have to end after their driver."""
_LONGER_SECONDS = 60.0
"""How long those that did not end in time are watched further, for the report alone."""
_COMMAND_CHARACTERS = 300


def left_over(variable: str, value: str) -> Iterator[str]:
    """What did not end in time among the processes with this environment variable, in words.

    Returns at once when there is none. Processes that stay for good are killed.
    """
    begin = time.monotonic()
    while (left := with_environment(variable, value)) and _since(begin) < END_SECONDS:
        time.sleep(0.2)
    described = {process: _described(process) for process in left}
    while left and _since(begin) < END_SECONDS + _LONGER_SECONDS:
        ended, left = psutil.wait_procs(left, timeout=1.0)
        for process in ended:
            yield f"ended after {_since(begin):.0f} s: {described[process]}"
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
        yield f"had to be killed: {described[process]}"


def _since(begin: float) -> float:
    return time.monotonic() - begin


def _described(process: psutil.Process) -> str:
    """A process's name, state and command line, as far as it still has them."""
    try:
        command = " ".join(process.cmdline())[:_COMMAND_CHARACTERS]
        return f"{process.name()} ({process.status()}): {command}"
    except psutil.Error:
        return f"process {process.pid}"
