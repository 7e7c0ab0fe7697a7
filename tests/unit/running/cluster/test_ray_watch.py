"""The loss of a process of Ray is noticed and put into a sentence."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.running.cluster.ray_watch import GCS_SECONDS, HANG_SECONDS, StartedRay, kept_logs
from tests.support.clock import Clock
from tests.support.commands import python


def await_status(process: psutil.Process, *, stopped: bool) -> None:
    while (process.status() == psutil.STATUS_STOPPED) is not stopped:
        time.sleep(0.01)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ray(clock: Clock) -> StartedRay:
    return StartedRay(clock)


@pytest.fixture
def raylet(ray: StartedRay, tmp_path: Path) -> Iterator[psutil.Process]:
    """A child process of that name, started after the watch has begun."""
    program = tmp_path / "raylet"
    sleep = shutil.which("sleep")
    assert sleep is not None
    shutil.copy(sleep, program)
    with subprocess.Popen([program, "600"]) as child:
        process = psutil.Process(child.pid)
        while process.name() != "raylet":
            time.sleep(0.01)
        yield process
        child.kill()


@pytest.mark.parametrize("is_seen_alive", [True, False])
def test_ended_raylet_is_a_loss(is_seen_alive, ray, raylet, monkeypatch):
    if is_seen_alive:
        assert ray.loss() == ""
    raylet.kill()
    while raylet.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    # The kernel's time of a start is relative to the boot, whose time moves with the clock.
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: 1e9 - time.perf_counter())
    assert ray.loss() == "its raylet has ended"
    assert StartedRay().loss() == "", "it was there before"


def test_stopped_raylet_is_a_loss_after_a_while(ray, clock, raylet):
    ray.is_started = True
    raylet.suspend()
    await_status(raylet, stopped=True)
    assert ray.loss() == ""
    clock.now += HANG_SECONDS / 2
    raylet.resume()
    await_status(raylet, stopped=False)
    assert ray.loss() == "", "it goes on"
    raylet.suspend()
    await_status(raylet, stopped=True)
    assert ray.loss() == ""
    clock.now += HANG_SECONDS / 2
    assert ray.loss() == ""
    clock.now += HANG_SECONDS
    assert ray.loss() == "its raylet has stood still for 30 s"


def test_gcs_that_does_not_start_is_a_loss(ray, clock):
    clock.now += GCS_SECONDS + 1
    assert ray.loss() == "its GCS did not start within 40 s"
    ray.is_started = True
    assert ray.loss() == ""


LOST = """
import subprocess, sys, time
from orchestrator.running.cluster.ray_watch import watched_start
with watched_start("none") as ray:
    child = subprocess.Popen([sys.argv[1], "600"])
    other = subprocess.Popen(["sleep", "600"])
    print(other.pid, flush=True)
    ray.is_started = True
    time.sleep(1)
    child.kill()
    time.sleep(250)
"""


def test_loss_ends_the_process_with_a_sentence_and_all_it_started(raylet, tmp_path):
    done = python("-c", LOST, tmp_path / "raylet")
    assert done.returncode == 1
    assert "was lost: its raylet has ended, and nothing can join it" in done.stderr
    assert "Traceback" not in done.stderr
    other = int(done.stdout)
    assert not psutil.pid_exists(other) or psutil.Process(other).status() == psutil.STATUS_ZOMBIE


def test_logs_of_a_ray_that_could_not_start_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert kept_logs(tmp_path / "ray") == ""
    logs = tmp_path / "ray" / "session_2026-11-27" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.err").write_text("no room")
    sentence = kept_logs(tmp_path / "ray")
    shutil.rmtree(tmp_path / "ray")
    kept = Path(sentence.removeprefix("its logs are in ").removesuffix("; "))
    assert (kept / "raylet.err").read_text() == "no room"
