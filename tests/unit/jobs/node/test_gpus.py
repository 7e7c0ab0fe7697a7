"""What a node reports, which GPUs a process sees, and whether others use them."""

import os
from dataclasses import replace

import pytest

from jobs.flags import FlagKind
from jobs.node import environment, gpu_fitness, memory_cap, nvml
from jobs.spec import LibrarySettings, MemoryCap
from orchestrator.units import GIB
from tests.conftest import build_tiny_spec
from tests.support.fake_nvml import FakeNvml


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two invented GPUs; tests change their name, UUIDs and memory."""
    fake = FakeNvml(monkeypatch, ["GPU-a", "GPU-b"])
    fake.name, fake.total = "NVIDIA A100-SXM4-40GB", 40 * GIB
    return fake


def test_cores_are_those_that_the_process_may_use():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert environment.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_slice_of_a_gpu_is_a_model_by_its_name_or_memory(gpu):
    describe = environment.describe.__wrapped__
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB"
    gpu.uuids, gpu.total = ["MIG-1"], round(4.75 * GIB)
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB MIG 4.75 GiB"
    gpu.name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert describe()["gpu_model"] == gpu.name


def test_gpu_that_simulates_a_smaller_card_is_a_model_and_capped(gpu, monkeypatch):
    spec = build_tiny_spec()
    assert memory_cap.of(spec) is None
    monkeypatch.setenv(environment.SIMULATED_GPU_VARIABLE, "24")
    described = environment.describe.__wrapped__()
    assert described["gpu_model"] == f"{gpu.name} as 24 GiB"
    assert described["gpu_memory_bytes"] == 24 * GIB
    assert memory_cap.of(spec) == MemoryCap(device_bytes=24 * GIB)
    smaller = MemoryCap(device_bytes=16 * GIB, non_allocator_bytes=1)
    capped = replace(spec, measure=replace(spec.measure, memory_cap=smaller))
    assert memory_cap.of(capped) == smaller


PLAIN = LibrarySettings(training_arguments={"optim": "adamw_torch"})
PAGED = LibrarySettings(training_arguments={"optim": "paged_adamw_8bit"})


@pytest.mark.parametrize(
    ("visible_devices", "uuids"),
    [
        (None, ["GPU-a", "GPU-b"]),
        ("1,0", ["GPU-b", "GPU-a"]),
        ("GPU-b", ["GPU-b"]),
        ("MIG-7", ["MIG-7"]),
        ("0,7,1", ["GPU-a"]),
        ("", []),
        ("-1", []),
    ],
)
def test_visible_uuids_follow_cuda_visible_devices(visible_devices, uuids, gpu, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible_devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    assert nvml.visible_uuids() == uuids


@pytest.mark.parametrize(
    ("processes", "used", "waiting", "words"),
    [
        ([], 0, 0, ""),
        ([7], GIB // 2, 1, ""),
        ([7], GIB // 2, 0, "0.5 GiB are in use on it, by 1 processes"),
        ([], 30 * GIB, 0, "30.0 GiB are in use on it, by unseen processes"),
    ],
    ids=["idle", "own_child", "process", "hidden_process"],
)
def test_shared_reports_other_processes(processes, used, waiting, words, gpu):
    gpu.processes = processes
    gpu.used = used
    assert gpu_fitness.shared(waiting=waiting) == words


def test_lost_reports_a_gpu_that_no_longer_answers(gpu):
    assert gpu_fitness.lost() == ""
    gpu.failing = {"nvmlDeviceGetMemoryInfo": "GPU is lost"}
    assert gpu_fitness.lost() == "GPU is lost"


def row(used: float, before: float = 0.6, processes: int = 0) -> dict[str, int]:
    """A trial that took ``used`` GiB. Of these, the context has 0.6 and the allocator 10."""
    gib = {
        "device_peak_bytes": used,
        "gpu_used_before_bytes": before,
        "gpu_context_bytes": 0.6,
        "peak_reserved_bytes": 10,
    }
    nbytes = {name: round(value * GIB) for name, value in gib.items()}
    return {**nbytes, "gpu_foreign_processes": processes}


@pytest.mark.parametrize(
    ("measurements", "settings", "expected"),
    [
        pytest.param(row(114.8), PLAIN, {FlagKind.SHARED_DURING: 104.2 * GIB}, id="during"),
        pytest.param(row(14.6, processes=2), PAGED, {FlagKind.SHARED_PROCESSES: 2}, id="processes"),
        pytest.param(row(10.8, before=30), PLAIN, {FlagKind.SHARED_BEFORE: 30 * GIB}, id="before"),
        pytest.param(row(10.8), PLAIN, {}, id="libraries"),
        pytest.param(row(11.7), PLAIN, {}, id="nccl"),
        pytest.param(row(14.6), PAGED, {}, id="paged_states"),
        pytest.param({"gpu_used_before_bytes": 1}, PLAIN, {}, id="ended_early"),
        pytest.param({}, PLAIN, {}, id="cpu"),
    ],
)
def test_flags_tell_how_a_gpu_was_shared(measurements, settings, expected):
    flags = gpu_fitness.sharing_flags(measurements, settings)
    assert {flag.kind: flag.value for flag in flags} == pytest.approx(expected, rel=1e-6)
