"""The processes below one, and when a process started, by figures of the kernel alone.

``psutil.Process.children`` and ``parents`` leave out a process that seems older than its parent.
They compare times of the system's clock. Where that clock is moved in between, they find nothing.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

import psutil


def children(pid: int) -> list[psutil.Process]:
    """The child processes of a process, also those that have ended and were not waited for."""
    return _by_parent().get(pid, [])


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below a process; parents come before their children."""
    by_parent = _by_parent()
    found: list[psutil.Process] = []
    parents = [pid]
    for parent in parents:
        below = by_parent.pop(parent, [])
        found += below
        parents += [process.pid for process in below]
    return found


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since the boot (proc(5), field 22 of ``stat``).

    A later process with the same pid has other ticks. Raises OSError if there is no such process.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The second field is the name in brackets, which may contain spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return int(fields[22 - 3])


def _by_parent() -> dict[int, list[psutil.Process]]:
    by_parent: dict[int, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            by_parent[process.ppid()].append(process)
    return by_parent
