"""Floating-point operations of a step, from the shapes of its operators, and the MFU."""

import functools
from collections.abc import Iterator, Mapping
from math import prod

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
_ATTENTION_BACKWARD = tuple(f"{name}_backward" for name in _ATTENTION)
_CONTRACTIONS = (*_PRODUCTS, *_ATTENTION, *_ATTENTION_BACKWARD, "convolution_backward")
COUNTED = frozenset(f"aten::{name}" for name in _CONTRACTIONS)
"""The operators that are counted: contractions, which do nearly all floating-point operations."""

_H100_SXM = {"bf16": 989.4e12, "fp16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12}
PEAKS: Mapping[str, tuple[Mapping[str, float], str]] = {
    "H200": (_H100_SXM, "H200 SXM"),
    "H100 PCIe": ({"bf16": 756e12, "fp16": 756e12, "tf32": 378e12, "fp32": 51.2e12}, "H100 PCIe"),
    "H100": (_H100_SXM, "H100 SXM"),
    "A100": ({"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12}, "A100"),
    "A40": ({"bf16": 149.7e12, "fp16": 149.7e12, "tf32": 74.8e12, "fp32": 37.4e12}, "A40"),
    "A10": ({"bf16": 125e12, "fp16": 125e12, "tf32": 62.5e12, "fp32": 31.2e12}, "A10"),
    "L40S": ({"bf16": 362e12, "fp16": 362e12, "tf32": 183e12, "fp32": 91.6e12}, "L40S"),
    "L4": ({"bf16": 121e12, "fp16": 121e12, "tf32": 60e12, "fp32": 30.3e12}, "L4"),
    "V100": ({"fp16": 125e12, "fp32": 15.7e12}, "V100 SXM2"),
    "T4": ({"fp16": 65e12, "fp32": 8.1e12}, "T4"),
}
"""Words of the GPU's name -> (precision -> flop/s, data sheet). The first match counts. Rates of
tensor cores are dense, half of those with sparsity."""


def flop(call: Call) -> int:
    """Floating-point operations of one call, 2 for each multiplication with its addition. Both
    passes of a convolution are counted at the backward one, whose operator knows all shapes."""
    name = call.operator.removeprefix("aten::")
    shapes = [shape or () for shape in call.shapes]
    if name in _PRODUCTS:
        if name in ("addmm", "baddbmm"):
            del shapes[0]  # of the summand, whose addition is not counted
        return _product_flop(*shapes[:2])
    if name == "convolution_backward":
        # The arguments are grad_output, input and weight. The forward pass does 2 operations for
        # each output element and weight that contributes to it, the backward pass twice as many.
        output, _, weight = shapes[:3]
        return 3 * 2 * prod(output) * prod(weight[1:])
    return _attention_flop(shapes, is_backward=name.endswith("_backward"))


def _product_flop(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """A matrix product: each element of ``left`` meets each column of ``right`` once."""
    return 2 * prod(left) * right[-1]


def _attention_flop(shapes: list[tuple[int, ...]], *, is_backward: bool) -> int:
    """Attention: two products forward, four backward; a product that is repeated is not counted."""
    if is_backward:
        # The backward operators have the output's gradient before query, key and value.
        return 2 * _attention_flop(shapes[1:], is_backward=False)
    query, key, value = shapes[:3]
    # Each query meets each key of its head; shapes are (..., length, head dimension).
    pairs = prod(query[:-1]) * key[-2]
    return 2 * pairs * (query[-1] + value[-1])


def efficiency(
    trace: Trace, *, device: str, precision: str, step_seconds: float
) -> Iterator[Entry]:
    """The part "efficiency": MFU = model flop / (seconds of a step x the device's peak rate).
    Compilers' fused operators are not counted. An unknown device has no peak rate and no MFU."""
    # Recomputed operations do not count for the MFU (Chowdhery et al. 2022, PaLM, appendix B). The
    # trace has only some of a step's micro-batches.
    model_flop = trace.repetitions * sum(flop(call) for call in trace.calls if not call.recomputed)
    recomputed_flop = trace.repetitions * sum(flop(call) for call in trace.calls if call.recomputed)
    if not model_flop:
        return
    entry = functools.partial(Entry, part="efficiency")
    yield entry(name="model flop", value=model_flop, unit="flop")
    if recomputed_flop:
        yield entry(name="recomputed flop", value=recomputed_flop, unit="flop")
    rate = model_flop / step_seconds
    yield entry(name="rate", value=rate, unit="flop/s")
    if device_peak := peak(device, precision):
        peak_rate, source = device_peak
        yield entry(name="peak", value=peak_rate, unit="flop/s", rule=f"{precision}, {source}")
        formula = "model flop / (seconds of a step × peak)"
        yield entry(name="MFU", value=rate / peak_rate, unit="", rule=formula)


def peak(device: str, precision: str) -> tuple[float, str] | None:
    """Flop per second and their source; None for a device or a precision not in ``PEAKS``."""
    words = device.replace("-", " ").split()
    for name, (rates, sheet) in PEAKS.items():
        if all(word in words for word in name.split()) and precision in rates:
            dense = ", dense tensor-core rates (half of those with sparsity)"
            kind = dense if "tf32" in rates else ""  # older sheets have one rate
            return rates[precision], f"NVIDIA's data sheet{kind}: {sheet}"
    return None
