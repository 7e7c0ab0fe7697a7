"""A sweep whose own Ray is struck ends in a sentence, and leaves nothing."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.storage.run_folder import RunFolder
from tests.integration.test_sweep import ROOT, command, config_of
from tests.support import light_parent
from tests.support.commands import python

pytestmark = pytest.mark.slow


@pytest.fixture
def driver(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[psutil.Popen]:
    """A sweep with temporary files of its own, at the moment of its start; the parameter is more
    of its environment.

    Its Ray is real, its trials only pretend to train: two end at once, the others would take long.
    """
    config = config_of(tmp_path, [1, 2, 4])
    temporary = tmp_path / "t"
    temporary.mkdir()
    own = {
        **light_parent.variables(500.0),
        "TMPDIR": str(temporary),
        **getattr(request, "param", {}),
    }
    process = psutil.Popen(
        command(config, tmp_path / "run"),
        cwd=ROOT,
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stdout.close()


def victim(driver: psutil.Popen, name: str) -> psutil.Process:
    """The driver's child of this name, once it is there."""
    while True:
        assert driver.poll() is None
        for child in driver.children():
            if child.name() == name:
                return child
        time.sleep(0.02)


def await_record(driver: psutil.Popen, folder: Path) -> None:
    """Wait for the first record. Fails with what the driver said if it ends before."""
    while not list(folder.glob("records/*.json")):
        assert driver.poll() is None, driver.stdout.read()
        time.sleep(0.1)


def must_end(driver: psutil.Popen, sentence: str) -> None:
    """The driver ends with this sentence last, and none of its processes is left.

    How long it may take says tests/unit/running/cluster/test_ray_watch.py.
    """
    started = driver.children(recursive=True)
    said, _ = driver.communicate()
    assert driver.returncode == 1, said
    assert sentence in said
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(started, timeout=60)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


# Ray waits 5 s for a head that starts.
@pytest.mark.parametrize("driver", [{"RAY_gcs_server_port_wait_time_s": "5"}], indirect=True)
def test_gcs_killed_while_ray_starts_is_a_sentence(driver):
    victim(driver, "gcs_server").kill()
    must_end(driver, "Ray could not be started here: ")


def test_driver_killed_while_ray_starts_leaves_nothing(driver, tmp_path):
    raylet = victim(driver, "raylet")
    driver.suspend()  # or Ray has started before this process sees the agents
    while not (agents := raylet.children()):
        time.sleep(0.02)
    for agent in agents:
        agent.suspend()  # while they start, Ray's agents end late; now they never do
    started = driver.children(recursive=True)
    driver.kill()
    said, _ = driver.communicate()
    assert said.endswith("Ray could not be started here: this process ended meanwhile; try again\n")
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
    left = {path.name for path in (tmp_path / "t").iterdir()}
    assert {name for name in left if not name.startswith("torchinductor_")} == set()


def test_raylet_killed_in_mid_run_is_a_sentence_at_once(driver, tmp_path):
    await_record(driver, tmp_path / "run")
    victim(driver, "raylet").kill()
    must_end(driver, "its raylet has ended, and nothing can join it")
    assert RunFolder(tmp_path / "run").records()


# Ray waits 10 s instead of 30 s for a silent head.
@pytest.mark.parametrize(
    "driver", [{"RAY_gcs_rpc_server_reconnect_timeout_s": "20"}], indirect=True
)
def test_head_that_stands_still_is_a_sentence(driver, tmp_path):
    await_record(driver, tmp_path / "run")
    victim(driver, "gcs_server").send_signal(signal.SIGSTOP)
    must_end(driver, "--resume goes on")


def test_no_home_folder_is_a_sentence(tmp_path):
    cache = str(Path.home() / ".cache")  # the facts of libraries stand there
    homeless = {"HOME": "/proc/none", "XDG_CACHE_HOME": cache}
    environment = {**os.environ, **light_parent.variables(), **homeless}
    words = ["-m", "orchestrator.sweep", config_of(tmp_path, [1]), "--output", tmp_path / "run"]
    done = python(*words, env=environment)
    assert done.returncode == 1
    assert "set HOME to a folder that can be written" in done.stderr
    assert "Traceback" not in done.stderr
