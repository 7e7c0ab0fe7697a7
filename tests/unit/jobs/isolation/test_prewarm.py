"""Prewarmed parents that do not answer: one slot waits for them, and no other."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs.isolation import prewarm
from jobs.isolation.slot import Limits, Slot
from jobs.record import Outcome
from tests.conftest import build_tiny_spec
from tests.support import light_parent
from tests.support.commands import ROOT


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A prewarmed parent that never accepts a slot, as if it had been stopped (SIGSTOP)."""
    monkeypatch.setenv(prewarm.FOLDER_VARIABLE, str(tmp_path))
    path = tmp_path / "cpu-1"
    waits = [sys.executable, "-c", "input()"]
    with (
        socket.socket(socket.AF_UNIX) as listener,
        subprocess.Popen(waits, stdin=subprocess.PIPE) as parent,
    ):
        listener.bind(str(path))
        listener.listen(1)
        path.with_suffix(".err").touch()
        path.with_suffix(".pid").write_text(str(parent.pid))
        yield parent
        parent.kill()


def test_slot_after_one_that_waited_in_vain_starts_its_own_parent(stopped, monkeypatch, tmp_path):
    monkeypatch.setenv(light_parent.NOTE_VARIABLE, str(tmp_path / "note"))
    # The slot that tries the stopped parent is given up: only this much of it is left.
    first = prewarm.take_over(cpus=1)
    assert first[0].pid == stopped.pid
    limits = Limits(start=60.0, silence=60.0)
    with Slot(cpus=1, limits=limits, parent_command=light_parent.COMMAND) as slot:
        record = slot.run(build_tiny_spec(), timeout_seconds=60.0)
        assert slot.parent_pid != stopped.pid
    first[1].close()
    os.close(first[2])
    assert record.outcome is Outcome.OK


STARTER = """
import os, signal, sys
from pathlib import Path
from jobs.isolation import prewarm
parent = prewarm._start(Path(sys.argv[1]), "", 1)
os.kill(parent.pid, signal.SIGSTOP)
print(parent.pid, flush=True)
sys.stdin.read()
"""


def test_parent_that_is_stopped_at_its_start_ends_with_its_killed_driver(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "cpu-1")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        parent = psutil.Process(int(driver.stdout.readline()))
        driver.kill()
    try:
        parent.wait(60)
    finally:
        with contextlib.suppress(psutil.Error):
            parent.kill()


def test_folder_of_a_parent_that_had_to_be_killed_is_removed_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(prewarm, "_devices", list)
    with prewarm.parents(cpus=1):
        (tmp_path / "orchestrator-slot-killed").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_no_parent_is_started_where_the_environment_names_waiting_ones(tmp_path, monkeypatch):
    monkeypatch.setenv(prewarm.FOLDER_VARIABLE, str(tmp_path))
    with prewarm.parents(cpus=1):
        assert prewarm.take_over(cpus=1) is None
    assert os.environ[prewarm.FOLDER_VARIABLE] == str(tmp_path)
