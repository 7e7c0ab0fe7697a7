"""The bound on Ray's start: it holds even where no thread of Python can run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.running.cluster.start_limit import start_limit

ROOT = Path(__file__).parents[4]
BLOCKED = """
import ctypes
from orchestrator.running.cluster.start_limit import start_limit
with start_limit(0.5, "Ray did not start", ended="this process ended"):
    # Unlike ctypes.CDLL, this keeps Python's lock while the function runs, as Ray's start does.
    ctypes.PyDLL(None).sleep(300)
"""


def test_start_that_blocks_all_of_python_ends_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert done.stderr == "Ray did not start\n"


def test_start_within_its_limit_prints_nothing_and_goes_on() -> None:
    code = BLOCKED.replace("sleep(300)", "sleep(0)").replace("0.5", "100")
    code += "print('started')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_start_that_ends_the_process_ends_in_a_sentence() -> None:
    # As Ray's C++ code does where its raylet was killed.
    code = BLOCKED.replace("PyDLL(None).sleep(300)", "CDLL(None)._exit(1)").replace("0.5", "100")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert done.stderr == "this process ended\n"


def test_start_goes_on_if_the_reporter_is_killed() -> None:
    code = """
import psutil
from orchestrator.running.cluster.start_limit import start_limit
with start_limit(100, "never said", ended="never said"):
    (reporter,) = psutil.Process().children()
    reporter.kill()
print("started")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_start_that_raises_keeps_its_error() -> None:
    with (
        pytest.raises(LookupError, match="no cluster"),
        start_limit(100.0, "never said", ended="never said"),
    ):
        raise LookupError("no cluster")
