"""Profiles a trained trial: runs the extra steps and puts its anatomy together."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from jobs.anatomy import rules_of_thumb
from jobs.anatomy.memory.ledger import DeviceReadings, host_memory, ledger, saved_activations
from jobs.anatomy.memory.live_tensors import live_tensors
from jobs.anatomy.memory.timeline import StepMemory, step_memory
from jobs.anatomy.observer import Observer
from jobs.anatomy.time.efficiency import COUNTED, efficiency
from jobs.anatomy.time.modules import is_compiled, module_ranges, modules
from jobs.anatomy.time.operations import operations
from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD, phases
from jobs.anatomy.trace import Trace
from jobs.anatomy.trace_reader import read
from jobs.anatomy_record import Anatomy, Entry
from jobs.loops.base import Trained
from jobs.node import nvml
from jobs.steady_state import GPU_BOUND

_SHORT_STEP_SECONDS = 0.25
"""Of steps shorter than this, several are timed."""
_TIMED_STEPS = 3
_LONG_STEP_SECONDS = 0.5
"""Steps longer than this are timed while they are profiled, if they are GPU-bound: the host's
extra work does not delay the device then."""
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}


def profile(trained: Trained, row: Mapping[str, Any]) -> Anatomy:
    """Train a few more steps and say where memory and time went.

    ``row`` has the trial's measurements, all of which must have been read. Raises what training
    may raise.
    """
    on_gpu = torch.cuda.is_available()
    # Before any extra step: profiling itself takes device memory.
    readings = _device_readings(row) if on_gpu else None
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    observer = Observer(
        lambda: live_tensors(model, trained.optimizer),
        _ranges(trained.model, model),
        on_gpu=on_gpu,
        timed_steps=_timed_steps(row),
        usual_data_wait=row["data_seconds_median"],
    )
    with _without_garbage_collection():
        trained.train_on(observer)
        assert observer.profile is not None
        device = "cuda" if on_gpu else "cpu"
        trace = read(observer.profile, device, COUNTED, observer.repetitions)
        known = replace(observer.known_blocks(), bucket_sizes=_bucket_sizes(trained.optimizer))
        memory = step_memory(trace, known)
        entries = [
            *_memory_entries(memory, readings, observer, row),
            *_time_entries(trace, observer, row),
        ]
    return Anatomy(entries=tuple(entries), timeline=memory.timeline)


def _ranges(trained_model: torch.nn.Module, model: torch.nn.Module) -> AbstractContextManager[None]:
    return nullcontext() if is_compiled(trained_model) else module_ranges(model)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection would delay a timed step, and a trace's many objects would make it slow."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _timed_steps(row: Mapping[str, Any]) -> int:
    """Steps to time before the profiled one; 0: time that one."""
    seconds: float = row["step_seconds_median"]
    is_gpu_bound = row.get("host_bound_share", 1.0) <= GPU_BOUND
    if seconds > _LONG_STEP_SECONDS and is_gpu_bound:
        return 0
    return _TIMED_STEPS if seconds < _SHORT_STEP_SECONDS else 1


def _device_readings(row: Mapping[str, Any]) -> DeviceReadings | None:
    """NVML's figures; None where the trial could not read them."""
    if "gpu_uuid" not in row or "gpu_context_bytes" not in row:
        return None
    used_by_trial = nvml.used_bytes(row["gpu_uuid"]) - row["gpu_used_before_bytes"]
    return DeviceReadings(
        peak=row["device_peak_bytes"],
        context=row["gpu_context_bytes"],
        outside_allocator=used_by_trial - torch.cuda.memory_reserved(),
    )


def _memory_entries(
    memory: StepMemory,
    readings: DeviceReadings | None,
    observer: Observer,
    row: Mapping[str, Any],
) -> Iterator[Entry]:
    yield from ledger(memory, readings, observer.live_tensors)
    yield from saved_activations(memory)
    if torch.cuda.is_available():
        yield from host_memory(observer.live_tensors)
    # Managed memory is in no allocator's events, so it is added to what they show.
    peak_by_name = Counter(memory.peak_by_name)
    for tensor in observer.live_tensors:
        if tensor.device == "managed":
            peak_by_name[tensor.name] += tensor.nbytes
    yield from rules_of_thumb.memory_rules(peak_by_name, row)
    yield from rules_of_thumb.peak_check(memory.peak_bytes, row)


def _time_entries(trace: Trace, observer: Observer, row: Mapping[str, Any]) -> Iterator[Entry]:
    on_gpu = torch.cuda.is_available()
    step_seconds = row["step_seconds_median"]
    operation_entries = list(operations(trace, step_seconds))
    phase_entries = list(
        phases(
            trace,
            observer.phase_seconds,
            step_seconds=step_seconds,
            host_updates=_host_updates(observer),
            on_gpu=on_gpu,
        )
    )
    yield from operation_entries
    yield from modules(trace)
    yield from phase_entries
    group_seconds = {
        entry.name: entry.value for entry in operation_entries if entry.part == "operations"
    }
    yield from rules_of_thumb.time_shares(group_seconds)
    for entry in phase_entries:
        if entry.name == BACKWARD_TO_FORWARD:
            yield rules_of_thumb.backward_ratio(entry.value)
    yield from efficiency(
        trace,
        device=torch.cuda.get_device_name() if on_gpu else "",
        precision=_precision(row),
        step_seconds=step_seconds,
    )


def _host_updates(observer: Observer) -> bool:
    """Whether the host updates the parameters: it holds the optimizer's states."""
    return any(
        tensor.device == "cpu" and "states" in tensor.name for tensor in observer.live_tensors
    )


def _precision(row: Mapping[str, Any]) -> str:
    """The precision of the matrix products, as ``peak_flops.PEAKS`` names it."""
    without_autocast = "tf32" if row.get("tf32") else "fp32"
    return _PRECISIONS.get(row.get("matmul_dtype", ""), without_autocast)


def _bucket_sizes(optimizer: Any) -> frozenset[int]:
    """Bytes of DeepSpeed's gradient buckets, at 2 and at 4 bytes per element; else empty."""
    layer = optimizer
    while layer is not None:
        elements = getattr(layer, "reduce_bucket_size", 0)
        if elements:
            return frozenset({int(elements) * 2, int(elements) * 4})
        layer = getattr(layer, "optimizer", None)
    return frozenset()
