"""What a node reports: a slice of a GPU and a simulated smaller card are models of their own."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from jobs.node import environment, memory_cap
from jobs.spec import MemoryCap
from tests.conftest import build_tiny_spec
from tests.support.fake_nvml import FakeNvml

GIB = 2**30


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """An invented GPU; tests change its name, UUID and memory."""
    fake = FakeNvml(monkeypatch, ["GPU-1"])
    fake.name, fake.total = "NVIDIA A100-SXM4-40GB", 40 * GIB
    return fake


def test_cores_are_those_that_the_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert environment.cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_slice_of_a_gpu_is_a_model_by_its_name_or_memory(gpu: FakeNvml) -> None:
    describe = environment.describe.__wrapped__
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB"
    gpu.uuids, gpu.total = ["MIG-1"], round(4.75 * GIB)
    assert describe()["gpu_model"] == "NVIDIA A100-SXM4-40GB MIG 4.75 GiB"
    gpu.name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert describe()["gpu_model"] == gpu.name


def test_gpu_that_simulates_a_smaller_card_is_a_model_and_capped(
    gpu: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
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
