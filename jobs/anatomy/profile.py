"""Profiles a trained trial: runs the extra steps and puts its anatomy together."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from jobs.anatomy import rules_of_thumb
from jobs.anatomy.memory.ledger import DeviceReadings, host_memory, ledger, saved_activations
from jobs.anatomy.memory.live_tensors import live_tensors
from jobs.anatomy.memory.timeline import StepMemory, step_memory
from jobs.anatomy.step_profiler import StepProfiler
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
"""If a step is shorter than this, several steps are timed."""
_TIMED_STEPS = 3
_LONG_STEP_SECONDS = 0.5
"""A step longer than this is timed while it is profiled, if the trial is GPU-bound. The profiler's
work on the host does not delay the device then."""
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}


def profile(trained: Trained, row: Mapping[str, Any]) -> Anatomy:
    """Train a few more steps and say where memory and time went.

    ``row`` has the trial's measurements. All of them must have been read before this call. Raises
    what training may raise.
    """
    # Before any extra step: profiling itself takes device memory.
    readings = _device_readings(row)
    observer = _observer(trained, row)
    with _without_garbage_collection():
        trained.train_on(observer)
        trace = _trace(observer)
        known = replace(observer.known_blocks(), bucket_sizes=_bucket_sizes(trained.optimizer))
        memory = step_memory(trace, known)
        entries = [
            *_memory_entries(memory, readings, observer, row),
            *_time_entries(trace, observer, row),
        ]
    return Anatomy(entries=tuple(entries), timeline=memory.timeline)


def _observer(trained: Trained, row: Mapping[str, Any]) -> StepProfiler:
    """The listener of the extra steps."""
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    reference = None
    if trained.preferences is not None:
        reference = trained.preferences.reference
    return StepProfiler(
        lambda: live_tensors(model, trained.optimizer, reference),
        _ranges(trained.model, model),
        on_gpu=torch.cuda.is_available(),
        timed_steps=_timed_steps(row),
        usual_data_wait=row["data_seconds_median"],
    )


def _trace(observer: StepProfiler) -> Trace:
    """The profiled step, on the device that computed it."""
    assert observer.profile is not None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return read(observer.profile, device, COUNTED, observer.repetitions)


def _ranges(trained_model: torch.nn.Module, model: torch.nn.Module) -> AbstractContextManager[None]:
    """Profiler ranges around the modules. None for compiled code: they would recompile it."""
    if is_compiled(trained_model):
        return nullcontext()
    return module_ranges(model)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Python's garbage collector is off within this context.

    A collection would delay a timed step. A trace has many objects, which make collections slow.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _timed_steps(row: Mapping[str, Any]) -> int:
    """How many steps to time before the profiled one. 0: time the profiled step itself."""
    seconds: float = row["step_seconds_median"]
    is_gpu_bound = row.get("host_bound_share", 1.0) <= GPU_BOUND
    if seconds > _LONG_STEP_SECONDS and is_gpu_bound:
        return 0
    if seconds < _SHORT_STEP_SECONDS:
        return _TIMED_STEPS
    return 1


def _device_readings(row: Mapping[str, Any]) -> DeviceReadings | None:
    """NVML's figures; None without a GPU, or if the trial could not read them."""
    if not torch.cuda.is_available():
        return None
    if "gpu_uuid" not in row or "gpu_context_bytes" not in row:
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
    observer: StepProfiler,
    row: Mapping[str, Any],
) -> Iterator[Entry]:
    """The parts "memory", "activations" and "host memory", and the rules about memory."""
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


def _time_entries(trace: Trace, observer: StepProfiler, row: Mapping[str, Any]) -> Iterator[Entry]:
    """The parts about time, the rules about time, and the efficiency."""
    on_gpu = torch.cuda.is_available()
    step_seconds = row["step_seconds_median"]
    # By kind of operation, by module, and by phase of the loop: three views of the same step.
    operation_entries = list(operations(trace, step_seconds))
    yield from operation_entries
    yield from modules(trace)
    phase_entries = list(
        phases(
            trace,
            observer.phase_seconds,
            step_seconds=step_seconds,
            host_updates=_host_updates(observer),
            on_gpu=on_gpu,
        )
    )
    yield from phase_entries
    yield from _time_rules(operation_entries, phase_entries)
    device = torch.cuda.get_device_name() if on_gpu else ""
    precision = _precision(row)
    yield from efficiency(trace, device=device, precision=precision, step_seconds=step_seconds)


def _time_rules(
    operation_entries: Sequence[Entry], phase_entries: Sequence[Entry]
) -> Iterator[Entry]:
    """The rules of thumb about time, applied to these entries."""
    group_seconds = {}
    for entry in operation_entries:
        if entry.part == "operations":
            group_seconds[entry.name] = entry.value
    yield from rules_of_thumb.time_shares(group_seconds)
    for entry in phase_entries:
        if entry.name == BACKWARD_TO_FORWARD:
            yield rules_of_thumb.backward_ratio(entry.value)


def _host_updates(observer: StepProfiler) -> bool:
    """Whether the host updates the parameters. It does if it holds optimizer states."""
    return any(
        tensor.device == "cpu" and "states" in tensor.name for tensor in observer.live_tensors
    )


def _precision(row: Mapping[str, Any]) -> str:
    """The precision of the matrix products, as ``peak_flops.PEAKS`` names it."""
    without_autocast = "fp32"
    if row.get("tf32"):
        without_autocast = "tf32"
    return _PRECISIONS.get(row.get("matmul_dtype", ""), without_autocast)


def _bucket_sizes(optimizer: Any) -> frozenset[int]:
    """Possible sizes of DeepSpeed's gradient buckets in bytes; empty without DeepSpeed."""
    layer = optimizer
    while layer is not None:
        # DeepSpeed counts elements. The gradients' dtype is not known here: 2 or 4 bytes each.
        elements = getattr(layer, "reduce_bucket_size", 0)
        if elements:
            return frozenset({int(elements) * 2, int(elements) * 4})
        layer = getattr(layer, "optimizer", None)
    return frozenset()
