"""Profiles a trained trial: runs the extra steps and puts its anatomy together."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from jobs.anatomy.memory.ledger import (
    DeviceReadings,
    host_memory,
    ledger,
    saved_activations,
)
from jobs.anatomy.memory.live_tensors import live_tensors, optimizer_layers
from jobs.anatomy.memory.timeline import StepMemory, step_memory
from jobs.anatomy.step_profiler import StepProfiler
from jobs.anatomy.time.operations import COUNTED, efficiency, operations
from jobs.anatomy.time.phases import module_ranges, modules, phases
from jobs.anatomy.trace import Trace
from jobs.anatomy.trace_reader import read
from jobs.anatomy_record import Anatomy, Entry
from jobs.loops.accumulated_loss import is_compiled
from jobs.loops.contract import Trained
from jobs.node import nvml
from jobs.steady_state import GPU_BOUND

_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}
"""Dtype of the matrix products -> their precision in ``operations.PEAKS``."""


def profile(trained: Trained, row: Mapping[str, Any]) -> Anatomy:
    """Train a few more steps and say where memory and time went. Raises what training may raise.
    ``row`` has the trial's measurements, which do not contain the profile's own memory."""
    readings = _device_readings(row)
    profiler = _profiler(trained, row)
    # A collection would delay a timed step. A trace has many objects, which make collections slow.
    gc.disable()
    try:
        trained.train_on(profiler)
        assert profiler.profile is not None
        device = "cuda" if torch.cuda.is_available() else "cpu"
        trace = read(profiler.profile, device, COUNTED, profiler.repetitions)
        known = replace(profiler.known_blocks(), bucket_sizes=_bucket_sizes(trained.optimizer))
        memory = step_memory(trace, known)
        entries = (
            *_memory_entries(memory, readings, profiler),
            *_time_entries(trace, profiler, row),
        )
    finally:
        gc.enable()
    return Anatomy(entries=entries, timeline=memory.timeline)


def _bucket_sizes(optimizer: Any) -> set[int]:
    """Bytes of DeepSpeed's gradient buckets, which count elements of a dtype not known here."""
    buckets = [getattr(layer, "reduce_bucket_size", 0) for layer in optimizer_layers(optimizer)]
    return {int(elements) * width for elements in buckets if elements for width in (2, 4)}


def _profiler(trained: Trained, row: Mapping[str, Any]) -> StepProfiler:
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    # No ranges around compiled modules: they would recompile the code.
    ranges = nullcontext() if is_compiled(trained.model) else module_ranges(model)
    return StepProfiler(
        lambda: live_tensors(model, trained.optimizer, trained.reference_model),
        ranges,
        on_gpu=torch.cuda.is_available(),
        timed_steps=_timed_steps(row),
        usual_data_wait=row["data_seconds_median"],
    )


def _timed_steps(row: Mapping[str, Any]) -> int:
    """How many steps to time before the profiled one. 0: time the profiled step itself."""
    if row["step_seconds_median"] <= 0.5:
        return 3
    # Of a GPU-bound trial the profiled step is timed, because the host does not delay the device.
    is_gpu_bound = row.get("host_bound_share", 1.0) <= GPU_BOUND
    return 0 if is_gpu_bound else 1


def _device_readings(row: Mapping[str, Any]) -> DeviceReadings | None:
    """NVML's figures; None without a GPU, or if the trial could not read them."""
    if not torch.cuda.is_available() or "gpu_context_bytes" not in row:
        return None
    # NVML counts the whole GPU: the trial's part is the growth since it began.
    used_by_trial = nvml.used_bytes(row["gpu_uuid"]) - row["gpu_used_before_bytes"]
    return DeviceReadings(
        peak=row["device_peak_bytes"],
        context=row["gpu_context_bytes"],
        outside_allocator=used_by_trial - torch.cuda.memory_reserved(),
    )


def _memory_entries(
    memory: StepMemory,
    readings: DeviceReadings | None,
    profiler: StepProfiler,
) -> Iterator[Entry]:
    yield from ledger(memory, readings, profiler.live_tensors)
    yield from saved_activations(memory)
    if torch.cuda.is_available():
        yield from host_memory(profiler.live_tensors)


def _time_entries(trace: Trace, profiler: StepProfiler, row: Mapping[str, Any]) -> Iterator[Entry]:
    on_gpu = torch.cuda.is_available()
    step_seconds = row["step_seconds_median"]
    yield from operations(trace, step_seconds)
    yield from modules(trace)
    # The host updates the parameters if it holds optimizer states.
    host_updates = any(
        tensor.device == "cpu" and "states" in tensor.name for tensor in profiler.live_tensors
    )
    seconds = profiler.phase_seconds
    times = {"step_seconds": step_seconds, "host_updates": host_updates, "on_gpu": on_gpu}
    yield from phases(trace, seconds, **times)
    device = torch.cuda.get_device_name() if on_gpu else ""
    without_autocast = "tf32" if row.get("tf32") else "fp32"
    precision = _PRECISIONS.get(row.get("matmul_dtype", ""), without_autocast)
    yield from efficiency(trace, device=device, precision=precision, step_seconds=step_seconds)
