"""The memory ledger adds up to what NVML reported."""

from __future__ import annotations

import pytest

from jobs.anatomy.memory.ledger import DeviceReadings, host_memory, ledger, saved_activations
from jobs.anatomy.memory.live_tensors import LiveTensor
from jobs.anatomy.memory.timeline import step_memory
from tests.support.traces import KNOWN, STEP

PAGED = LiveTensor(address=77, nbytes=30, device="managed", name="optimizer states")


@pytest.mark.parametrize(
    ("outside_allocator", "paged"),
    [(530, 30), (500, 0), (1000, 30)],
    ids=["paged_on_device", "paged_on_host", "with_libraries"],
)
def test_ledger_adds_up_to_nvmls_peak(outside_allocator: int, paged: int) -> None:
    memory = step_memory(STEP, KNOWN)
    readings = DeviceReadings(peak=3000, context=500, outside_allocator=outside_allocator)
    values = {entry.name: entry.value for entry in ledger(memory, readings, [PAGED])}
    assert sum(values.values()) == 3000
    assert values["cached by the allocator"] == 2000 - memory.peak_bytes
    assert values["residual"] == 3000 - 2000 - outside_allocator
    assert values.get("paged optimizer states", 0) == paged


def test_ledger_without_readings_adds_up_to_the_tensors() -> None:
    memory = step_memory(STEP, KNOWN)
    assert sum(entry.value for entry in ledger(memory, None, [])) == memory.peak_bytes


def test_saved_activations_are_listed_by_operator() -> None:
    entries = saved_activations(step_memory(STEP, KNOWN))
    assert {entry.name: entry.value for entry in entries} == {"addmm": 300.0, "compiled code": 20.0}


def test_host_memory_adds_up_tensors_of_one_name() -> None:
    on_host = [
        LiveTensor(address=address, nbytes=10, device="cpu", name="optimizer states")
        for address in (1, 2)
    ]
    (entry,) = host_memory([*on_host, PAGED])
    assert (entry.name, entry.value, entry.kind) == ("optimizer states", 20.0, "optimizer states")
