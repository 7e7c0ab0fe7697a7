"""Operators: which ones computed attention and matrix products, and in which dtype; on the CPU what a step held."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Phase, Tracker

if TYPE_CHECKING:
    from torch.autograd import profiler

    from jobs.trackers.sources.dispatch_mode import Dispatched

_CPP_NAMES = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")
_ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash (cpu)",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_fused_attention_overrideable": "overrideable",
    "aten::_scaled_dot_product_attention_math": "math",
    "aten::_safe_softmax": "math",
    "aten::_softmax": "softmax",
    "flash_attn::_flash_attn_forward": "flash-attn",
    "flash_attn::_flash_attn_varlen_forward": "flash-attn",
    "flex_attention": "flex",
}


class Operators(Tracker):
    """Looks at the operators of the last step of the warm-up: the counted steps never see it.

    On a GPU at those of the first forward pass, as they are dispatched, which shows all that is asked of it; without
    one PyTorch's CPU profiler looks at the whole step.
    """

    columns: ClassVar = (
        Column(
            "attention_kernel",
            "string",
            "attention operators that ran in a forward pass of the last warm-up step",
        ),
        Column("matmul_dtype", "string", "dtype that most matrix products seen there ran in"),
        Column(
            "cpu_step_peak_bytes",
            "int64",
            "without a GPU: most bytes that step held beyond what lives between steps",
            unit="B",
        ),
        Column("inspection_seconds", "float64", "cost of looking at them", unit="s"),
    )

    def __init__(self) -> None:
        self._is_due = False
        self._dispatched: Dispatched | None = None
        self._profile: profiler.profile | None = None
        self._attention: Counter[str] = Counter()
        self._products: Counter[str] = Counter()
        self._values: dict[str, Any] = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_dispatched()

    def step_begin(self, warmup_left: int) -> None:
        if warmup_left != 1:
            return
        import torch

        if torch.cuda.is_available():
            self._is_due = True
            return
        from torch.autograd import profiler

        begin = time.perf_counter()
        # torch.profiler's own class is a reference cycle: its many events would be freed some counted steps later.
        self._profile = profiler.profile(use_kineto=True, record_shapes=True, profile_memory=True)
        self._profile.__enter__()
        self._values["inspection_seconds"] = time.perf_counter() - begin

    def phase(self, name: Phase) -> None:
        if name == "forward" and self._is_due:
            from jobs.trackers.sources.dispatch_mode import Dispatched

            self._is_due = False
            self._dispatched = Dispatched(self._see)
            self._dispatched.__enter__()  # type: ignore[no-untyped-call]
        elif name == "backward":
            self._end_dispatched()

    def step_end(self) -> None:
        if self._profile is None:
            return
        begin, profile = time.perf_counter(), self._profile
        self._profile = None
        profile.__exit__(None, None, None)
        assert profile.kineto_results is not None
        self._read(profile.kineto_results.events())
        self._values["inspection_seconds"] += time.perf_counter() - begin

    def measurements(self) -> Mapping[str, Any]:
        values = dict(self._values)
        if self._attention:  # a compiler may fuse it into kernels of its own
            values["attention_kernel"] = ", ".join(
                name for name, _ in self._attention.most_common()
            )
        if self._products:
            values["matmul_dtype"] = self._products.most_common(1)[0][0]
        return values

    def _see(self, name: str, operands: Sequence[Any]) -> None:
        if name in _PRODUCTS:
            self._products[str(operands[1].dtype).removeprefix("torch.")] += 1
        elif name in _ATTENTION:
            self._attention[_ATTENTION[name]] += 1

    def _end_dispatched(self) -> None:
        if self._dispatched is not None:
            self._dispatched.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._values["inspection_seconds"] = self._dispatched.seconds
            self._dispatched = None

    def _read(self, events: Iterable[Any]) -> None:
        flow: list[tuple[int, int]] = []
        for event in events:
            name = event.name()
            if name in _PRODUCTS and event.dtypes():
                dtype = event.dtypes()[-1 if name == "aten::mm" else 1]
                self._products[_CPP_NAMES.get(dtype, dtype)] += 1
            elif name in _ATTENTION:
                self._attention[_ATTENTION[name]] += 1
            elif name == "[memory]":
                flow.append((event.start_ns(), event.nbytes()))
        self._values["cpu_step_peak_bytes"] = _highest(nbytes for _, nbytes in sorted(flow))


def _highest(changes: Iterable[int]) -> int:
    level = peak = 0
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak
