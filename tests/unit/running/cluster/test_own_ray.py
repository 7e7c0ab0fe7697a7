"""A Ray of our own: the loss of its processes is noticed and put into a sentence."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.running.cluster import own_ray
from orchestrator.running.cluster.own_ray import OwnRay
from tests.support.clock import Clock


@pytest.fixture
def raylet(tmp_path: Path) -> Iterator[psutil.Process]:
    """A child process of that name."""
    program = tmp_path / "raylet"
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, program)
    with subprocess.Popen([program, "60"]) as child:
        process = psutil.Process(child.pid)
        while process.name() != "raylet":
            time.sleep(0.01)
        yield process
        own_ray.end_those_left([process])


def test_ended_raylet_is_a_loss(raylet: psutil.Process) -> None:
    ray = OwnRay(earlier=())
    assert ray.loss() == ""
    raylet.kill()
    while raylet.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert ray.loss() == "its raylet has ended"


def test_raylet_that_ended_before_the_first_look_is_a_loss(raylet: psutil.Process) -> None:
    raylet.kill()
    while raylet.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert OwnRay(earlier=()).loss() == "its raylet has ended"
    assert OwnRay(earlier=[raylet]).loss() == "", "it was there before"


def test_stopped_raylet_is_a_loss_after_a_while(raylet: psutil.Process) -> None:
    clock = Clock()
    ray = OwnRay(clock, ())
    assert ray.loss() == ""
    raylet.suspend()
    while raylet.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert ray.loss() == ""
    clock.now += own_ray.STANDSTILL_SECONDS / 2
    assert ray.loss() == ""
    clock.now += own_ray.STANDSTILL_SECONDS
    assert ray.loss() == "its raylet has stood still for 30 s"
    own_ray.end_those_left([raylet])
    assert not psutil.pid_exists(raylet.pid) or raylet.status() == psutil.STATUS_ZOMBIE


def test_raylet_that_goes_on_is_no_loss(raylet: psutil.Process) -> None:
    clock = Clock()
    ray = OwnRay(clock, ())
    ray.is_started = True
    raylet.suspend()
    ray.loss()
    clock.now += own_ray.STANDSTILL_SECONDS / 2
    raylet.resume()
    while raylet.status() == psutil.STATUS_STOPPED:
        time.sleep(0.01)
    ray.loss()
    clock.now += own_ray.STANDSTILL_SECONDS
    assert ray.loss() == ""


def test_start_without_end_is_a_loss() -> None:
    clock = Clock()
    ray = OwnRay(clock)
    clock.now += own_ray.GCS_SECONDS + 1
    assert ray.loss() == "its GCS did not start within 40 s"


def test_start_that_takes_too_long_is_a_loss(raylet: psutil.Process) -> None:
    clock = Clock()
    ray = OwnRay(clock, ())
    ray.loss()
    ray._processes["gcs_server"] = raylet
    clock.now += own_ray.START_SECONDS + 1
    assert "did not start within" in ray.loss()
    ray.is_started = True
    assert ray.loss() == ""


LOST = """
import subprocess, sys, time
from orchestrator.running.cluster import own_ray
with own_ray.watched() as ray:
    child = subprocess.Popen([sys.argv[1], "60"])
    other = subprocess.Popen(["sleep", "60"])
    print(other.pid, flush=True)
    ray.is_started = True
    time.sleep(1)
    child.kill()
    time.sleep(30)
"""


def test_loss_ends_the_process_with_a_sentence_and_all_it_started(
    raylet: psutil.Process, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(tmp_path / "raylet")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "was lost: its raylet has ended, and nothing can join it" in done.stderr
    assert "Traceback" not in done.stderr
    other = int(done.stdout)
    assert not psutil.pid_exists(other) or psutil.Process(other).status() == psutil.STATUS_ZOMBIE


def test_raylet_is_found_while_the_system_clock_is_moved(
    raylet: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel's time of a start is relative to the boot, whose time moves with the clock.
    start_times = itertools.count(1e9, -60)
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: next(start_times))
    ray = OwnRay(earlier=())
    raylet.kill()
    while raylet.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert ray.loss() == "its raylet has ended"
