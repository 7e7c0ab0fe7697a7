"""Operators: which ones computed attention and matrix products, and in which dtype; on the CPU what a step held."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Phase, Tracker

if TYPE_CHECKING:
    from torch.autograd import profiler

_CPP_NAMES = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash (cpu)",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_softmax": "softmax",
    "flash_attn::_flash_attn_forward": "flash-attn",
    "flash_attn::_flash_attn_varlen_forward": "flash-attn",
    "flex_attention": "flex",
}


class Operators(Tracker):
    """Runs PyTorch's CPU profiler in the last step of the warm-up: the counted steps never see it.

    On a GPU only over the first forward pass, which shows all that is asked of it; without one over the whole step.
    """

    columns: ClassVar = (
        Column(
            name="attention_kernel",
            type="string",
            doc="attention operators that ran in a forward pass of the last warm-up step",
        ),
        Column(name="matmul_dtype", type="string", doc="dtype that most matrix products seen there ran in"),
        Column(
            name="step_growth_bytes",
            type="int64",
            unit="B",
            doc="without a GPU: most bytes that step held beyond what lives between steps",
        ),
        Column(name="inspection_seconds", type="float64", unit="s", doc="cost of the profiler"),
    )

    def __init__(self) -> None:
        self._profile: profiler.profile | None = None
        self._seconds = 0.0
        self._values: dict[str, Any] = {}

    def step_begin(self, warmup_left: int) -> None:
        if warmup_left != 1:
            return
        import torch
        from torch.autograd import profiler

        begin = time.perf_counter()
        # torch.profiler's own class is a reference cycle: its many events would be freed some counted steps later.
        self._profile = profiler.profile(
            use_kineto=True, record_shapes=True, profile_memory=not torch.cuda.is_available()
        )
        self._profile.__enter__()
        self._seconds = time.perf_counter() - begin

    def phase(self, name: Phase) -> None:
        if self._profile is not None and name == "backward" and not self._profile.profile_memory:
            self._end(self._profile)

    def step_end(self) -> None:
        if self._profile is not None:
            self._end(self._profile)

    def _end(self, profile: profiler.profile) -> None:
        begin = time.perf_counter()
        self._profile = None
        profile.__exit__(None, None, None)
        assert profile.kineto_results is not None
        self._values = _read(profile.kineto_results.events())
        self._values["inspection_seconds"] = self._seconds + time.perf_counter() - begin

    def measurements(self) -> Mapping[str, Any]:
        return self._values


def _read(events: Iterable[Any]) -> dict[str, Any]:
    attention: Counter[str] = Counter()
    products: Counter[str] = Counter()
    flow: list[tuple[int, int]] = []
    for event in events:
        name = event.name()
        if name in _PRODUCTS and event.dtypes():
            dtype = event.dtypes()[-1 if name == "aten::mm" else 1]
            products[_CPP_NAMES.get(dtype, dtype)] += 1
        elif name in _ATTENTION:
            attention[_ATTENTION[name]] += 1
        elif name == "[memory]":
            flow.append((event.start_ns(), event.nbytes()))
    values: dict[str, Any] = {"step_growth_bytes": _highest(nbytes for _, nbytes in sorted(flow))} if flow else {}
    if attention:  # a compiler may fuse it into kernels of its own
        values["attention_kernel"] = ", ".join(name for name, _ in attention.most_common())
    if products:
        values["matmul_dtype"] = products.most_common(1)[0][0]
    return values


def _highest(changes: Iterable[int]) -> int:
    level = peak = 0
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak
