"""Which GPUs CUDA_VISIBLE_DEVICES chooses, and whether other processes use them."""

from __future__ import annotations

import pytest

from jobs.node import gpu_fitness, nvml
from tests.support.fake_nvml import FakeNvml

GIB = 2**30


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(monkeypatch, ["GPU-a", "GPU-b"])


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
def test_visible_uuids_follow_cuda_visible_devices(
    visible_devices: str | None, uuids: list[str], fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_shared_reports_other_processes(
    processes: list[int], used: int, waiting: int, words: str, fake: FakeNvml
) -> None:
    fake.processes = processes
    fake.used = used
    assert gpu_fitness.shared(waiting=waiting) == words


def test_lost_reports_a_gpu_that_no_longer_answers(fake: FakeNvml) -> None:
    assert gpu_fitness.lost() == ""
    fake.failing = {"nvmlDeviceGetMemoryInfo": "GPU is lost"}
    assert gpu_fitness.lost() == "GPU is lost"
