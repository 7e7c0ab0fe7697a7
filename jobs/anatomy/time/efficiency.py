"""Floating-point operations of a step, from the shapes its operators were given, and the share of the device's peak."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from jobs.anatomy.time.peak_flops import peak
from jobs.anatomy.trace import Call, Trace
from jobs.anatomy_record import Entry

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_ATTENTION = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
COUNTED = frozenset(
    f"aten::{name}"
    for name in (
        *_PRODUCTS,
        *_ATTENTION,
        *(f"{name}_backward" for name in _ATTENTION),
        "convolution_backward",
    )
)
"""The operators whose floating-point operations are counted: contractions, where nearly all of them are."""


def flop(call: Call) -> int:
    """Floating-point operations of one call; 2 for each multiplication with its addition.

    Attention's backward pass has four products of the forward's size, not counting the one that fused kernels repeat.
    A convolution is counted with its backward pass, which has twice its operations and knows all shapes.
    """
    name = call.operator.removeprefix("aten::")
    shapes = [shape or () for shape in call.shapes]
    if name in _PRODUCTS:
        left, right = shapes[1:3] if name in ("addmm", "baddbmm") else shapes[:2]
        return 2 * prod(left) * right[-1]
    if name == "convolution_backward":
        out, _, weight = shapes[:3]
        return 3 * 2 * prod(out) * prod(weight[1:])
    backward = name.endswith("_backward")
    query, key, value = shapes[1:4] if backward else shapes[:3]
    pairs = prod(query[:-1]) * key[-2]
    return (2 if backward else 1) * 2 * pairs * (query[-1] + value[-1])


def efficiency(
    trace: Trace, *, device: str, precision: str, step_seconds: float
) -> Iterator[Entry]:
    """The part "efficiency": MFU = flop of the model / (seconds of a step x the device's peak), recomputation apart.

    Operators that a compiler fused into kernels of its own are not seen. An unknown device has no peak and no MFU.
    """
    model = trace.times * sum(flop(call) for call in trace.calls if not call.recomputed)
    again = trace.times * sum(flop(call) for call in trace.calls if call.recomputed)
    if not model:
        return
    yield Entry(part="efficiency", name="model flop", value=model, unit="flop")
    if again:
        yield Entry(part="efficiency", name="recomputed flop", value=again, unit="flop")
    yield Entry(part="efficiency", name="rate", value=model / step_seconds, unit="flop/s")
    known = peak(device, precision)
    if known is not None:
        rate, source = known
        yield Entry(
            part="efficiency", name="peak", value=rate, unit="flop/s", rule=f"{precision}, {source}"
        )
        formula = "model flop / (seconds of a step × peak)"
        yield Entry(
            part="efficiency", name="MFU", value=model / step_seconds / rate, unit="", rule=formula
        )
