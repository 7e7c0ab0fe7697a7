"""Other processes on a trial's GPU, seen whenever they come."""

import itertools
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from jobs.trackers.device import Device
from jobs.trackers.tracker import Moment
from jobs.trial.trial_columns import derived
from orchestrator.units import GIB
from tests.support.fake_nvml import FakeNvml

OTHER = 2**22 - 1
"""An id that no process here has."""
CONTEXT = 1


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A GPU that the trial has to itself."""
    fake = FakeNvml(monkeypatch, ["GPU-0"])
    fake.processes = [os.getpid()]
    return fake


def foreign_processes(tracker: Device) -> int:
    return int(tracker.measurements()["gpu_foreign_processes"])


def test_device_sees_a_process_that_comes_and_goes(gpu):
    with Device(poll_seconds=0.001) as tracker:
        tracker.start(CONTEXT)
        for moment in (Moment.CONTEXT, Moment.MODEL, Moment.TRAIN_BEGIN):
            tracker.at(moment, 0.0)
        assert foreign_processes(tracker) == 0
        gpu.awaited = OTHER
        gpu.listed.clear()
        gpu.processes = [os.getpid(), OTHER]
        gpu.used = GIB
        assert gpu.listed.wait(timeout=60)
        gpu.processes = [os.getpid()]
        gpu.used = 0
        tracker.at(Moment.TRAIN_END, 0.0)
        assert foreign_processes(tracker) == 1


def test_device_counts_a_process_that_it_lists_while_training_fails(gpu, monkeypatch):
    is_over, listed_by = threading.Event(), gpu.nvmlDeviceGetComputeRunningProcesses

    def slowly(handle: str) -> list[Any]:
        listed = listed_by(handle)
        if len(listed) > 1:
            is_over.wait(60)
        return listed

    monkeypatch.setattr(gpu, "nvmlDeviceGetComputeRunningProcesses", slowly)
    with Device(poll_seconds=0.001) as tracker:
        tracker.start(CONTEXT)
        tracker.at(Moment.TRAIN_BEGIN, 0.0)
        gpu.awaited = OTHER
        gpu.listed.clear()
        gpu.processes, gpu.used = [os.getpid(), OTHER], GIB
        assert gpu.listed.wait(timeout=60)
        threading.Timer(0.2, is_over.set).start()
        assert foreign_processes(tracker) == 1


def test_device_sees_a_process_that_makes_training_fail(gpu):
    threads = threading.active_count()
    with Device(poll_seconds=60.0) as tracker:
        tracker.start(CONTEXT)
        tracker.at(Moment.TRAIN_BEGIN, 0.0)
        gpu.processes = [os.getpid(), OTHER]
        gpu.used = GIB
        assert foreign_processes(tracker) == 1
        shutdowns = gpu.shutdowns
    assert (threading.active_count(), gpu.shutdowns) == (threads, shutdowns + 1)


def test_device_polls_memory_after_the_counted_steps(gpu):
    with Device(poll_seconds=0.001) as tracker:
        tracker.start(CONTEXT)
        tracker.at(Moment.TRAIN_BEGIN, 0.0)
        tracker.counted(0.0, 1.0)
        # A step on the longest rows, which empties its cache before the training ends.
        gpu.awaited = OTHER
        gpu.listed.clear()
        gpu.processes = [os.getpid(), OTHER]
        gpu.used = 3 * GIB
        assert gpu.listed.wait(timeout=60)
        gpu.used = GIB
        tracker.at(Moment.TRAIN_END, 0.0)
        assert tracker.measurements()["device_peak_bytes"] == 3 * GIB + CONTEXT


@pytest.mark.parametrize(("polled", "peak"), [(9 * GIB, 9 * GIB), (6 * GIB, 8 * GIB)])
def test_device_peak_is_at_least_what_the_allocator_held(tiny_spec, polled, peak):
    values = {"device_peak_bytes": polled, "peak_reserved_bytes": 7 * GIB, "gpu_context_bytes": GIB}
    figures = derived({**values, "samples_per_second_ci95": 0.0}, tiny_spec(), "cuda")
    assert figures["device_peak_bytes"] == peak


def test_device_lists_processes_only_when_memory_has_changed(gpu):
    with Device() as tracker:
        tracker.start(CONTEXT)
        gpu.used = GIB
        for is_listed in (True, False):
            gpu.listed.clear()
            tracker.at(Moment.TRAIN_END, 0.0)
            assert gpu.listed.is_set() is is_listed


@pytest.mark.parametrize("processes", [[], [OTHER]], ids=["hidden", "renumbered"])
def test_device_in_a_container_counts_no_other_process(gpu, processes):
    gpu.processes = processes
    with Device() as tracker:
        tracker.start(CONTEXT)
        assert foreign_processes(tracker) == 0


def test_device_counts_no_process_of_the_trial_itself(gpu):
    waits = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as worker, Device() as tracker:
        gpu.processes = [os.getpid(), worker.pid]
        tracker.start(CONTEXT)
        worker.kill()
        assert foreign_processes(tracker) == 0


def test_device_reports_memory_and_energy_of_the_training_alone(gpu):
    readings, are_several = itertools.count(1), threading.Event()

    def energy(handle: str) -> int:
        if (reading := next(readings)) == 3:
            are_several.set()
        return 1_000_000 * reading

    gpu.nvmlDeviceGetTotalEnergyConsumption, gpu.used = energy, GIB
    with Device(poll_seconds=0.001) as tracker:
        tracker.start(0)
        gpu.used = 2 * GIB
        tracker.at(Moment.CONTEXT, 0.0)
        tracker.at(Moment.TRAIN_BEGIN, 0.0)
        assert are_several.wait(timeout=60)
        tracker.counted(0.0, time.perf_counter())
        gpu.used = 3 * GIB
        tracker.at(Moment.TRAIN_END, 0.0)
        gpu.used = 9 * GIB
        values = dict(tracker.measurements())
        assert values.pop("energy_joules") >= 2_000
        assert values == {
            "gpu_uuid": "GPU-0",
            "gpu_used_before_bytes": GIB,
            "gpu_foreign_processes": 0,
            "gpu_context_bytes": GIB,
            "device_peak_bytes": 2 * GIB,
            "hf_guide_memory_mib": 3 * 1024,
        }
