"""How GPUs are linked, and what their processes exchange."""

import pytest

from jobs.node import collectives
from jobs.node.nvml import link_of
from tests.support.fake_nvml import FakeNvml

UUIDS = ["GPU-a", "GPU-b", "GPU-c"]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    return FakeNvml(monkeypatch, UUIDS)


@pytest.mark.parametrize(
    ("levels", "link"),
    [
        ({}, "NVLink"),
        ({"GPU-aGPU-b": 10}, "PCIe through one switch"),
        # One pair across sockets slows all down.
        ({"GPU-aGPU-b": 10, "GPU-bGPU-c": 50}, "PCIe across sockets"),
        ({"GPU-aGPU-c": 30}, "PCIe through the host bridge"),
    ],
)
def test_link_of_several_gpus_is_the_slowest(nvml, levels, link):
    nvml.levels = levels
    assert link_of(UUIDS) == link


def test_link_is_unknown_for_one_gpu_or_none_or_where_nvml_does_not_say(nvml):
    assert link_of(UUIDS[:1]) is None
    assert link_of([None, None]) is None
    nvml.failing = {"nvmlDeviceGetP2PStatus": "Not Supported"}
    assert link_of(UUIDS) is None


def test_collectives_of_two_processes_are_timed_at_three_sizes(monkeypatch):
    monkeypatch.delenv("MASTER_PORT", raising=False)
    figures = collectives.measure(2)
    names = ("all-reduce", "all-gather", "reduce-scatter")
    measured = {(own["operation"], own["bytes"]) for own in figures}
    assert measured == {(name, size) for name in names for size in collectives.CPU_SIZES}
    for own in figures:
        # A rank sends half of the tensor, and for a sum receives it again.
        sent = own["bytes"] * (1.0 if own["operation"] == "all-reduce" else 0.5)
        assert own["bus_bytes_per_second"] == pytest.approx(sent / own["seconds"])
