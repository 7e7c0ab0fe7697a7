"""A trained trial to its anatomy: run the pass, then put the parts together."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from jobs.anatomy import rules_of_thumb
from jobs.anatomy.memory.ledger import Seen, ledger, on_host, saved
from jobs.anatomy.memory.live_tensors import residents
from jobs.anatomy.memory.timeline import Memory, account
from jobs.anatomy.observer import Observer
from jobs.anatomy.time import modules
from jobs.anatomy.time.efficiency import COUNTED, efficiency
from jobs.anatomy.time.operations import operations
from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD, phase_reader, phases
from jobs.anatomy.trace import Trace, read
from jobs.anatomy_record import Anatomy, Entry
from jobs.loops.base import Trained
from jobs.node import nvml
from jobs.steady_state import GPU_BOUND

_SHORT_SECONDS = 0.25
"""Of steps that take less, several are timed."""
_TIMED_STEPS = 3
_LONG_SECONDS = 0.5
"""Steps that take more are timed while they are profiled, where the device is so much behind the host that it does not
notice."""
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16"}


def profile(trained: Trained, row: Mapping[str, Any]) -> Anatomy:
    """Train a few steps more and say where memory and time went. ``row``: the measurements so far.

    Raises what training may raise; the trial's measurements must have been read before.
    """
    on_gpu = torch.cuda.is_available()
    seen = _seen(row) if on_gpu else None
    model = trained.accelerator.unwrap_model(trained.model, keep_torch_compile=False)
    observer = Observer(
        lambda: residents(model, trained.optimizer),
        nullcontext() if modules.is_compiled(trained.model) else modules.ranges(model),
        on_gpu=on_gpu,
        timed_steps=_timed_steps(row),
        usual_wait=row["data_seconds_median"],
    )
    with _uncollected():
        trained.train_on(observer)
        assert observer.profile is not None
        trace = read(observer.profile, "cuda" if on_gpu else "cpu", COUNTED, observer.times)
        known = replace(observer.known(), buckets=_buckets(trained.optimizer))
        memory = account(trace, known)
        entries = [*_memory(memory, seen, observer, row), *_time(trace, observer, row)]
    return Anatomy(entries=tuple(entries), timeline=memory.timeline)


@contextmanager
def _uncollected() -> Iterator[None]:
    """The collector would hold up a timed step, and walk through a trace's many objects again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _timed_steps(row: Mapping[str, Any]) -> int:
    seconds: float = row["step_seconds_median"]
    if seconds > _LONG_SECONDS and row.get("host_bound_share", 1.0) <= GPU_BOUND:
        return 0
    return _TIMED_STEPS if seconds < _SHORT_SECONDS else 1


def _seen(row: Mapping[str, Any]) -> Seen | None:
    """NVML's view, before anything of the pass has happened."""
    if "gpu_uuid" not in row or "gpu_context_bytes" not in row:
        return None
    used = nvml.used_bytes(row["gpu_uuid"]) - row["gpu_used_before_bytes"]
    return Seen(
        device_used=row["device_peak_bytes"],
        context=row["gpu_context_bytes"],
        outside=used - torch.cuda.memory_reserved(),
    )


def _memory(
    memory: Memory, seen: Seen | None, observer: Observer, row: Mapping[str, Any]
) -> Iterator[Entry]:
    yield from ledger(memory, seen, observer.residents)
    yield from saved(memory)
    if torch.cuda.is_available():
        yield from on_host(observer.residents)
    paged: Counter[str] = Counter()
    for one in observer.residents:
        paged[one.name] += one.nbytes if one.device == "managed" else 0
    yield from rules_of_thumb.rules(paged + Counter(memory.most), row)
    yield from rules_of_thumb.same_peak(memory.peak, row)


def _time(trace: Trace, observer: Observer, row: Mapping[str, Any]) -> Iterator[Entry]:
    on_gpu = torch.cuda.is_available()
    seconds = row["step_seconds_median"]
    done = list(operations(trace, phase_reader(trace), seconds))
    host_updates = any(one.device == "cpu" and "states" in one.name for one in observer.residents)
    spent = list(
        phases(
            trace, observer.timed, step_seconds=seconds, host_updates=host_updates, on_gpu=on_gpu
        )
    )
    yield from done
    yield from modules.modules(trace, phase_reader(trace))
    yield from spent
    yield from rules_of_thumb.shares(
        {entry.name: entry.value for entry in done if entry.part == "operations"}
    )
    yield from (
        rules_of_thumb.ratio(entry.value) for entry in spent if entry.name == BACKWARD_TO_FORWARD
    )
    device = torch.cuda.get_device_name() if on_gpu else ""
    yield from efficiency(trace, device=device, precision=_precision(row), step_seconds=seconds)


def _precision(row: Mapping[str, Any]) -> str:
    return _PRECISIONS.get(row.get("matmul_dtype", ""), "tf32" if row.get("tf32") else "fp32")


def _buckets(optimizer: Any) -> frozenset[int]:
    """Sizes of the gradient buckets of DeepSpeed's ZeRO, in bytes; empty elsewhere."""
    layer = optimizer
    while layer is not None:
        if elements := getattr(layer, "reduce_bucket_size", 0):
            return frozenset(int(elements) * size for size in (2, 4))
        layer = getattr(layer, "optimizer", None)
    return frozenset()
