"""The guard ends what a killed driver leaves behind, and speaks for a driver that stands still."""

import contextlib
import os
import subprocess
import sys

import psutil
import pytest

from jobs.isolation.scratch import RAY_PREFIX
from orchestrator.running import guard as guard_module
from orchestrator.running.guard import VARIABLE, end_all, guarded
from tests.support.commands import ROOT, python

DRIVER = """
import subprocess, sys
from jobs.isolation.scratch import RAY_PREFIX, own_folder
from orchestrator.running.guard import guarded
with own_folder(RAY_PREFIX), guarded() as guard:
    with guard.marking():
        # Its child outlives it, as Ray's agents outlive their raylet.
        raylet = subprocess.run(
            ["sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"], capture_output=True, text=True
        )
    other = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
    print(raylet.stdout.strip(), other.pid, flush=True)
    sys.stdin.read()
"""
BLOCKED = """
import ctypes
from orchestrator.running.guard import guarded
with guarded() as guard:
    with guard.limit(0.5, "Ray did not start", ended="this process ended"):
        # Unlike ctypes.CDLL, this keeps Python's lock while it runs, as Ray's start does.
        ctypes.PyDLL(None).sleep(300)
    print("started")
"""
AT_ONCE = BLOCKED.replace("sleep(300)", "sleep(0)").replace("0.5", "100")


def test_what_a_killed_driver_leaves_ends_and_its_folder_goes(tmp_path):
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    marked, other = (psutil.Process(int(pid)) for pid in driver.stdout.readline().split())
    try:
        (guard,) = (child for child in psutil.Process(driver.pid).children() if child != other)
        assert next(tmp_path.iterdir()).name.startswith(RAY_PREFIX)
        marked.suspend()
        driver.kill()
        driver.communicate()
        marked.wait(60)
        guard.wait(60)
        assert list(tmp_path.iterdir()) == []
        assert other.is_running(), "it was not left to the guard"
    finally:
        for process in (driver, marked, other):
            with contextlib.suppress(psutil.Error):
                process.kill()


def test_guard_ends_with_its_context_and_marks_nothing_afterwards():
    before = set(psutil.Process().children())
    with guarded() as guard:
        (process,) = set(psutil.Process().children()) - before
        with guard.marking():
            assert VARIABLE in os.environ
    assert VARIABLE not in os.environ
    assert not process.is_running()


def test_driver_goes_on_without_a_guard(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no further process")

    monkeypatch.setattr(guard_module.subprocess, "Popen", refuse)
    with guarded() as guard, guard.marking(), guard.limit(100, "never said", ended="never said"):
        assert VARIABLE in os.environ


def test_process_that_does_not_end_is_given_up(monkeypatch):
    monkeypatch.setattr(guard_module, "_marked", lambda entry: iter([2**22 + 1]))
    end_all("none", seconds=0.2)


@pytest.mark.parametrize(
    ("code", "status", "out", "error"),
    [
        (BLOCKED, 1, "", "Ray did not start\n"),
        (AT_ONCE, 0, "started\n", ""),
        # As Ray's C++ code does where its raylet was killed.
        (AT_ONCE.replace("sleep(0)", "_exit(1)"), 1, "", "this process ended\n"),
        (AT_ONCE.replace("ctypes.Py", "guard._process.kill(); ctypes.Py"), 0, "started\n", ""),
    ],
    ids=["blocks all of Python", "starts", "ends the process", "loses its guard"],
)
def test_start_within_a_limit(code, status, out, error):
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (status, out, error)
