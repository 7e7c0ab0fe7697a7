"""The process that reads a GPU, with a SIMULATED one in NVML's place: it holds more with every look."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import gauge
from jobs.trackers.base import Moment
from jobs.trackers.device import Device

PYNVML = """
import itertools, os
from types import SimpleNamespace
from pathlib import Path
NVML_CLOCK_SM = NVML_TEMPERATURE_GPU = 0
nvmlClocksThrottleReasonSwPowerCap = 4
class NVMLError(Exception): pass
_used = itertools.count(1)
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return "handle"
def nvmlDeviceGetHandleByUUID(uuid): return "handle"
def nvmlDeviceGetUUID(handle): return "GPU-simulated"
def nvmlDeviceGetMemoryInfo(handle):
    if Path(os.environ["LOST"]).exists(): raise NVMLError("GPU is lost")
    return SimpleNamespace(used=next(_used) * 2**20)
def nvmlDeviceGetComputeRunningProcesses(handle): return [SimpleNamespace(pid=1)]
def nvmlDeviceGetTotalEnergyConsumption(handle): raise NVMLError("Not Supported")
def nvmlDeviceGetUtilizationRates(handle): return SimpleNamespace(gpu=97)
def nvmlDeviceGetClockInfo(handle, which): return 1755
def nvmlDeviceGetTemperature(handle, which): return 50
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return 4
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[gauge.Gauge]:
    """This process's gauge of the simulated GPU."""
    (tmp_path / "pynvml.py").write_text(PYNVML)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])]))
    monkeypatch.setenv("LOST", str(tmp_path / "lost"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gauge, "_gauge", None)
    started = gauge.ensure()
    assert started is not None
    yield started
    for one in {started, gauge._gauge} - {None}:
        with one._process as process:  # type: ignore[union-attr]
            process.kill()
    sys.modules.pop("pynvml", None)


def test_device_is_read_by_a_process_of_its_own(own: gauge.Gauge) -> None:
    with Device() as device:
        for moment in (Moment.START, Moment.CONTEXT, Moment.MODEL, Moment.TRAIN_BEGIN):
            device.at(moment, time.perf_counter())
        begin = time.perf_counter()
        time.sleep(4 * gauge.POLL_SECONDS)
        device.counted(begin, time.perf_counter())
        device.at(Moment.TRAIN_END, time.perf_counter())
    found = device.measurements()
    assert found["gpu_uuid"] == "GPU-simulated"
    assert found["gpu_used_before_bytes"] == 2**20
    assert found["gpu_foreign_processes"] == 1
    assert found["gpu_model_bytes"] == 2 * 2**20
    # It held more with every look: those of the polls lie between the moments'.
    assert found["device_used_bytes"] == found["gpu_after_training_bytes"] > 4 * 2**20
    assert found["gpu_sm_clock_mhz"] == 1755
    assert found["gpu_power_capped_share"] == 1
    assert "energy_joules" not in found


def test_trial_that_breaks_off_has_what_it_used(own: gauge.Gauge) -> None:
    with Device() as device:
        for moment in (Moment.START, Moment.TRAIN_BEGIN):
            device.at(moment, time.perf_counter())
    assert device.measurements()["device_used_bytes"] == 2 * 2**20


def test_forked_and_started_trials_ask_the_same_gauge(own: gauge.Gauge) -> None:
    before = own.used_bytes()
    if (pid := os.fork()) == 0:
        asked = gauge.current()
        os._exit(0 if asked is not None and asked.used_bytes() == before + 2**20 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    variables = dict(os.environ)
    descriptors = own.hand_over(variables)
    code = "from jobs import gauge; print(gauge.current().used_bytes())"
    said = subprocess.run(
        [sys.executable, "-c", code], env=variables, pass_fds=descriptors, capture_output=True, check=True
    ).stdout
    assert int(said) == before + 2 * 2**20
    assert own.used_bytes() == before + 3 * 2**20


def test_an_answer_to_one_who_was_killed_is_not_the_next_ones(own: gauge.Gauge) -> None:
    if (pid := os.fork()) == 0:
        os.write(own._requests, b"7 watch\n")
        os._exit(0)
    os.waitpid(pid, 0)
    time.sleep(3 * gauge.POLL_SECONDS)
    os.write(own._requests, b"8 readings\n")
    while os.read(own._replies, 1) != b"[":  # and it died in the middle of reading it
        pass
    assert own.processes() == [1]


def test_what_the_driver_refuses_is_said(own: gauge.Gauge) -> None:
    Path(os.environ["LOST"]).touch()
    with pytest.raises(RuntimeError, match="GPU is lost"):
        own.used_bytes()
    Path(os.environ["LOST"]).unlink()
    assert own.used_bytes() > 0


def test_gauge_that_ended_is_said_and_replaced(own: gauge.Gauge) -> None:
    assert own._process is not None
    own._process.kill()
    own._process.wait()
    with pytest.raises(RuntimeError, match="is gone"):
        own.used_bytes()
    replaced = gauge.ensure()
    assert replaced is not own
    assert replaced is not None
    assert replaced.used_bytes() == 2**20


def test_gauge_ends_with_those_who_may_ask(own: gauge.Gauge) -> None:
    assert own._process is not None
    assert own._process.stdin is not None
    own._process.stdin.close()
    assert own._process.wait(timeout=30) == 0
