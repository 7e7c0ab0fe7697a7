"""The operators of one step: which computed attention and matrix products, and in which dtype."""

import itertools
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.tracker import Phase, Tracker

if TYPE_CHECKING:
    from torch.autograd import profiler

    from jobs.trackers.sources.dispatch_mode import OperatorListener

_DTYPE_OF_CPP_NAME = {
    "float": "float32",
    "double": "float64",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
}
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm")
"""Argument 1 of each is a factor, as in addmm(bias, a, b) and, in FP8, _scaled_mm(a, b, ...)."""
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
    "xformers_flash::flash_fwd": "xformers",
    "xformers_flash3::flash_fwd": "xformers",
    "aten::_efficient_attention_forward": "xformers",
    "flex_attention": "flex",
}
"""Operator -> the attention kernel that it stands for."""


class Operators(Tracker):
    """Inspects the last warm-up step, so that no counted step is disturbed. On a GPU it sees the
    operators of the first forward pass. On a CPU, PyTorch's profiler records the whole step, memory
    included."""

    columns: ClassVar = (
        Column.text(
            "attention_kernel", "Attention kernels in the last warm-up step's forward pass"
        ),
        Column.text("matmul_dtype", "Dtype of most matrix products of that step"),
        Column.nbytes("cpu_step_peak_bytes", "On a CPU, that step's peak beyond persistent_bytes"),
        Column.seconds("inspection_seconds", "Time that inspecting the operators took"),
    )

    def __init__(self) -> None:
        self._inspects_next_forward = False
        self._listener: OperatorListener | None = None
        self._profile: profiler.profile | None = None
        self._attention: Counter[str] = Counter()
        self._products: Counter[str] = Counter()
        self._values: dict[str, Any] = {}

    def release(self) -> None:
        """End an inspection that a failed step left open."""
        self._stop_listening()

    def step_begin(self, warmup_left: int) -> None:
        if warmup_left != 1:
            return
        import torch
        from torch.autograd import profiler

        if torch.cuda.is_available():
            self._inspects_next_forward = True
            return
        begin = time.perf_counter()
        # Not torch.profiler's class: its objects form a reference cycle. Python's garbage collector
        # would free their many events during a counted step.
        self._profile = profiler.profile(use_kineto=True, record_shapes=True, profile_memory=True)
        self._profile.__enter__()
        self._values["inspection_seconds"] = time.perf_counter() - begin

    def phase(self, name: Phase) -> None:
        """On a GPU, listen from the beginning of a forward pass to its end."""
        if name == "forward" and self._inspects_next_forward:
            from jobs.trackers.sources.dispatch_mode import OperatorListener

            self._inspects_next_forward = False
            self._listener = OperatorListener(self._hear)
            self._listener.__enter__()  # type: ignore[no-untyped-call]
        elif name == "backward":
            self._stop_listening()

    def step_end(self) -> None:
        """On a CPU, end the step's profile: count its operators, and follow its allocations."""
        if self._profile is None:
            return
        begin = time.perf_counter()
        # Cleared first, so that the end of the next step does not read the same profile again.
        profile, self._profile = self._profile, None
        profile.__exit__(None, None, None)
        assert profile.kineto_results is not None
        events: Iterable[Any] = profile.kineto_results.events()
        changes: list[tuple[int, int]] = []
        for event in events:
            name = event.name()
            if name == "[memory]":
                changes.append((event.start_ns(), event.nbytes()))
            elif name in _PRODUCTS and event.dtypes():
                dtype = event.dtypes()[1]
                self._products[_DTYPE_OF_CPP_NAME.get(dtype, dtype)] += 1
            elif name in _ATTENTION:
                self._attention[_ATTENTION[name]] += 1
        # The highest level, from zero, that the changes reach in their order.
        levels = itertools.accumulate((nbytes for _, nbytes in sorted(changes)), initial=0)
        self._values["cpu_step_peak_bytes"] = max(levels)
        self._values["inspection_seconds"] += time.perf_counter() - begin

    def measurements(self) -> Mapping[str, Any]:
        """What the inspection found; empty without one."""
        values = dict(self._values)
        # No attention operator is seen if a compiler fused attention into its own kernels.
        if self._attention:
            kernels = [name for name, _ in self._attention.most_common()]
            values["attention_kernel"] = ", ".join(kernels)
        if self._products:
            # A model may keep a few products in 32 bits.
            values["matmul_dtype"] = self._products.most_common(1)[0][0]
        return values

    def _hear(self, name: str, arguments: Sequence[Any]) -> None:
        if name in _PRODUCTS:
            self._products[str(arguments[1].dtype).removeprefix("torch.")] += 1
        elif name in _ATTENTION:
            self._attention[_ATTENTION[name]] += 1

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._values["inspection_seconds"] = self._listener.seconds
            self._listener = None
