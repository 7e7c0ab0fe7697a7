"""What a killed driver leaves behind ends, even if it is stopped, and its folders are removed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from jobs.isolation.scratch import RAY_PREFIX
from orchestrator.running import orphans

ROOT = Path(__file__).parents[3]
DRIVER = """
import subprocess, sys
from jobs.isolation.scratch import RAY_PREFIX, own_folder
from orchestrator.running import orphans
with own_folder(RAY_PREFIX), orphans.guard() as guard:
    with guard.marking():
        # Its child outlives it, as Ray's agents outlive their raylet.
        raylet = subprocess.run(
            ["sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"], capture_output=True, text=True
        )
    other = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
    print(raylet.stdout.strip(), other.pid, flush=True)
    sys.stdin.read()
"""


def start(temporary: Path) -> tuple[subprocess.Popen[str], psutil.Process, psutil.Process]:
    """A driver, a process that it has left to the guard, and another process of it."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert driver.stdout is not None
    marked, other = (psutil.Process(int(pid)) for pid in driver.stdout.readline().split())
    return driver, marked, other


def test_what_a_killed_driver_leaves_ends_and_its_folder_goes(tmp_path: Path) -> None:
    driver, marked, other = start(tmp_path)
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


def test_guard_ends_with_its_driver_and_marks_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(psutil.Process().children())
    with orphans.guard() as guard:
        (process,) = set(psutil.Process().children()) - before
        assert orphans.is_guard(process.cmdline())
        with guard.marking():
            assert orphans.VARIABLE in os.environ
    assert orphans.VARIABLE not in os.environ
    assert not process.is_running()


def test_driver_goes_on_without_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("no further process")

    monkeypatch.setattr(orphans.subprocess, "Popen", refuse)
    with orphans.guard() as guard, guard.marking():
        assert orphans.VARIABLE in os.environ


def test_process_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "_marked", lambda entry: iter([2**22 + 1]))
    orphans.end_all("none", seconds=0.2)
