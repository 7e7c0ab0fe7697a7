"""The processes below one are found whatever psutil remembers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from orchestrator.running import process_tree


@pytest.fixture
def grandchild() -> Iterator[int]:
    """The pid of a process that a child of this process has started."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        while not (below := process_tree.children(child.pid)):
            time.sleep(0.01)
        yield below[0].pid
        child.kill()


def test_descendants_are_children_and_theirs_parents_first(grandchild: int) -> None:
    found = [process.pid for process in process_tree.descendants(os.getpid())]
    child = psutil.Process(grandchild).ppid()
    assert found.index(child) < found.index(grandchild)
    assert grandchild not in [process.pid for process in process_tree.children(os.getpid())]


def test_child_is_found_though_psutil_remembers_an_earlier_process_with_its_pid(
    grandchild: int,
) -> None:
    child = psutil.Process(grandchild).ppid()
    for process in psutil.process_iter():
        if process.pid == child:
            process._ident = (child, 0.0)  # as of a process that started at another time
    assert child in [process.pid for process in process_tree.children(os.getpid())]


def test_start_of_a_process_is_in_ticks_since_the_boot() -> None:
    before = _ticks_since_boot()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        after = _ticks_since_boot()
        started = process_tree.start_ticks(process.pid)
        process.kill()
    # All three are rounded down.
    assert before <= started <= after


def _ticks_since_boot() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def test_start_of_an_absent_process_is_an_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    with pytest.raises(OSError, match="No such"):
        process_tree.start_ticks(process.pid)
