"""The figures of the trackers are the right readings, in the units of their columns."""

from types import SimpleNamespace

import pytest
import torch

from jobs.trackers import host
from jobs.trackers.cuda_allocator import Allocator
from jobs.trackers.device import GpuSensors
from jobs.trackers.tracker import Moment


class Sensors:
    """A SIMULATED GPU that draws 500 W and warms up; one reading a second."""

    NVMLError = RuntimeError
    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    nvmlClocksThrottleReasonSwPowerCap = 4
    seconds = 0.0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> float:
        return 7_000_000 + 500_000 * self.seconds  # millijoules

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> float:
        return (0, 1_900 + self.seconds)[clock]

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> float:
        return (60 - self.seconds, 0)[sensor]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return 4 + 1 if self.seconds < 2 else 1


def test_sensors_give_joules_means_and_the_highest_temperature(monkeypatch):
    nvml = Sensors()
    monkeypatch.setattr("jobs.trackers.sources.series.time.perf_counter", lambda: nvml.seconds)
    sensors = GpuSensors(nvml, "GPU-0")
    for second in range(6):
        nvml.seconds = float(second)
        sensors.read()
    assert sensors.between(1.0, 4.0) == {
        "energy_joules": pytest.approx(1_500.0),
        "gpu_sm_clock_mhz": pytest.approx(1_902.5),
        "gpu_temperature_celsius": 59,
        "gpu_power_capped_share": pytest.approx(0.25),
    }


def test_allocator_has_the_peaks_of_the_training_alone(monkeypatch):
    stats = {"allocated_bytes.all.peak": 90, "reserved_bytes.all.peak": 100, "num_alloc_retries": 2}
    allocated = {"bytes": 0}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: allocated["bytes"])
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: dict(stats))

    def restarted() -> None:
        now = allocated["bytes"]
        stats.update({"allocated_bytes.all.peak": now, "reserved_bytes.all.peak": now + 10})

    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", restarted)
    tracker = Allocator()
    for moment in (Moment.CONTEXT, Moment.MODEL, Moment.TRAIN_BEGIN, Moment.TRAIN_END):
        allocated["bytes"] += 20
        tracker.at(moment, 0.0)
    assert tracker.measurements() == {
        "peak_allocated_bytes": 60,
        "peak_reserved_bytes": 70,
        "model_allocated_bytes": 40,
        "allocator_retries": 2,
    }


@pytest.mark.parametrize("vm_hwm", [f"{3_000:8d} kB", ""])
def test_host_has_bytes_where_the_kernel_counts_kib(monkeypatch, vm_hwm):
    """Since the trial began, and without /proc since the process did."""
    written = {}
    known = {("/proc/self/status", "VmHWM:"): vm_hwm}
    monkeypatch.setattr(host.Path, "write_text", lambda path, text: written.update({path: text}))
    monkeypatch.setattr(host, "kernel_value", lambda *asked: known[asked])
    usage = SimpleNamespace(ru_maxrss=3_000)
    monkeypatch.setattr(host.resource, "getrusage", {host.resource.RUSAGE_SELF: usage}.get)
    tracker = host.Host()
    tracker.start(0)
    assert written == {host.Path("/proc/self/clear_refs"): "5"}
    assert tracker.measurements() == {"host_peak_resident_bytes": 3_072_000}
