"""The processes below one, and when a process started, by figures of the kernel alone.

``psutil.Process.children`` and ``parents`` leave out a process that seems older than its parent.
They compare times of the system's clock. Where that clock is moved in between, they find nothing.
``psutil.process_iter`` remembers processes, and fails for a later process with the same pid.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

import psutil

_FIRST_FIELD = 3
"""Number of the first field in ``_stat_fields``."""
_PARENT = 4
_START = 22
"""Numbers of fields in /proc/PID/stat: the parent's pid, and the start in ticks (proc(5))."""


def children(pid: int) -> list[psutil.Process]:
    """The child processes of a process, also those that have ended and were not waited for."""
    return _processes(_by_parent().get(pid, []))


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below a process; parents come before their children."""
    by_parent = _by_parent()
    found: list[int] = []
    parents = [pid]
    for parent in parents:
        below = by_parent.pop(parent, [])
        found += below
        parents += below
    return _processes(found)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since the boot.

    A later process with the same pid has other ticks. Raises OSError if there is no such process.
    """
    return int(_stat_fields(pid)[_START - _FIRST_FIELD])


def _by_parent() -> dict[int, list[int]]:
    """Pid -> the pids of its children, for all processes of this machine."""
    by_parent: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            by_parent[int(_stat_fields(pid)[_PARENT - _FIRST_FIELD])].append(pid)
    return by_parent


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the second one. Raises OSError without such a process."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    # The second field is the name in brackets, which may contain spaces and brackets.
    return stat.rpartition(")")[2].split()


def _processes(pids: list[int]) -> list[psutil.Process]:
    """The processes with these pids that are still there."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found
