"""Every byte of a step has a name, and the ledger adds up to what NVML reported."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from jobs.anatomy.memory.ledger import DeviceReadings, host_memory, ledger, saved_activations
from jobs.anatomy.memory.live_tensors import LiveTensor, live_tensors, nested_tensors
from jobs.anatomy.memory.timeline import SAMPLES, step_memory
from jobs.anatomy.trace import Trace
from tests.support.traces import GRADIENT, INPUT, KNOWN, PHASES, STEP

PAGED = LiveTensor(address=77, nbytes=30, device="managed", name="optimizer states")


@pytest.mark.parametrize(
    ("outside_allocator", "paged"),
    [(530, 30), (500, 0), (1000, 30)],
    ids=["paged_on_device", "paged_on_host", "with_libraries"],
)
def test_ledger_adds_up_to_nvmls_peak(outside_allocator, paged):
    memory = step_memory(STEP, KNOWN)
    readings = DeviceReadings(peak=3000, context=500, outside_allocator=outside_allocator)
    values = {entry.name: entry.value for entry in ledger(memory, readings, [PAGED])}
    assert sum(values.values()) == 3000
    assert values["cached by the allocator"] == 2000 - memory.peak_bytes
    assert values["residual"] == 3000 - 2000 - outside_allocator
    assert values.get("paged optimizer states", 0) == paged
    assert sum(entry.value for entry in ledger(memory, None, [])) == memory.peak_bytes


def test_saved_activations_are_listed_by_operator():
    entries = saved_activations(step_memory(STEP, KNOWN))
    assert {entry.name: entry.value for entry in entries} == {"addmm": 300.0, "compiled code": 20.0}


def test_host_memory_adds_up_tensors_of_one_name():
    on_host = [replace(PAGED, address=address, device="cpu") for address in (1, 2)]
    (entry,) = host_memory([*on_host, PAGED])
    assert (entry.name, entry.value, entry.kind) == ("optimizer states", 60.0, "optimizer states")


def test_step_memory_at_the_peak_names_every_byte():
    memory = step_memory(STEP, KNOWN)
    assert memory.at_peak == {
        "weights": 100,
        "optimizer states": 200,
        "other": 7,
        "inputs": 8,
        "autocast copies of weights": 50,
        "saved activations": 320,
        "recomputed activations": 60,
        "gradients": 100,
    }
    assert memory.peak_bytes == sum(memory.at_peak.values())
    # DeepSpeed's buckets are known by their size.
    assert step_memory(STEP, replace(KNOWN, bucket_sizes={300})).at_peak["ZeRO buffers"] == 300


def test_step_memory_names_blocks_from_before_the_trace():
    late = replace(STEP, memory_events=STEP.memory_events[9:])
    before = {**KNOWN.before, GRADIENT: 100, INPUT: 8}
    memory = step_memory(late, replace(KNOWN, before=before))
    assert memory.at_peak["gradients"] == 100
    assert memory.at_peak["inputs"] == 8


def test_lone_release_changes_nothing():
    seen = replace(STEP, memory_events=STEP.memory_events[:-1])
    assert STEP.memory_events[-1].address not in KNOWN.before
    assert step_memory(STEP, KNOWN) == step_memory(seen, KNOWN)


def test_timeline_keeps_the_highest_moment_of_each_stretch():
    memory = step_memory(STEP, KNOWN)
    timeline = memory.timeline
    totals = [sum(moment) for moment in zip(*timeline.held.values(), strict=True)]
    assert max(totals) == memory.peak_bytes
    assert len(timeline.seconds) == len(totals) <= SAMPLES
    assert [name for name, _ in timeline.phases] == [phase.name for phase in PHASES]


def test_step_memory_of_an_empty_trace_is_what_was_there_before():
    memory = step_memory(Trace(), KNOWN)
    assert memory.at_peak == {"weights": 100, "optimizer states": 200, "other": 7}
    assert memory.timeline.seconds == [0.0]


def test_live_tensors_names_weights_gradients_and_states():
    model = torch.nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    # Accelerate and DeepSpeed have an optimizer around it.
    wrapper = SimpleNamespace(optimizer=optimizer)
    nbytes = Counter()
    for tensor in live_tensors(model, wrapper):
        nbytes[tensor.name] += tensor.nbytes
    assert nbytes == {"weights": 64, "gradients": 64, "optimizer states": 64}


def test_live_tensors_lists_a_shared_storage_once():
    model = torch.nn.Linear(4, 4, bias=False)
    model.register_buffer("view", model.weight.detach()[:2])
    (tensor,) = live_tensors(model, None)
    assert (tensor.name, tensor.nbytes, tensor.device) == ("weights", 64, "cpu")


def test_nested_tensors_stops_at_its_depth():
    tensor = torch.ones(1)
    assert list(nested_tensors({"a": [(tensor, None)]})) == [tensor]
    assert list(nested_tensors([[[[[tensor]]]]])) == []
