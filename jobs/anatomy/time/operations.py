"""A step's time by kind of operation, in the Hugging Face guide's groups; its FLOP, and the MFU."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from jobs.anatomy.trace import Call, Trace, Work, phase_weight
from jobs.anatomy_record import Entry

CONTRACTIONS = "tensor contractions"
NORMALIZATIONS = "statistical normalizations"
ELEMENTWISE = "element-wise operators"
GUIDE_GROUPS = (CONTRACTIONS, NORMALIZATIONS, ELEMENTWISE)
MOVEMENT = "data movement"
COMMUNICATION = "communication"
OPTIMIZER = "optimizer and clipping"
IDLE = "idle"

_Patterns = Sequence[tuple[str, str]]

# Group -> pattern; the first match decides. A fused kernel counts as the largest part of what it
# does: attention as contraction, a compiled kernel with a reduction as normalization.
_TRANSFER_KERNELS: _Patterns = ((COMMUNICATION, r"nccl|gloo|c10d"), (MOVEMENT, r"^Mem(cpy|set)"))
_CONTRACTION_KERNELS: _Patterns = (
    (
        CONTRACTIONS,
        r"gemm|gemv|nvjet|cutlass|xmma|fmha|flash|attention|sdpa|conv|wgrad|dgrad|triton_tem"
        r"|splitK|cublas|grouped_mm",
    ),
)
_OPERATORS: _Patterns = (
    (COMMUNICATION, r"c10d|nccl|gloo|all_?reduce|all_?gather|reduce_scatter|broadcast_"),
    (
        CONTRACTIONS,
        r"::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|einsum|_?grouped_mm|mkldnn\w*"
        r"|cudnn_conv\w*|_?conv\w*|thnn_conv\w*|_scaled_dot_product\w*|_flash_attention\w*"
        r"|_efficient_attention\w*|_cudnn_attention\w*|_flash_attn\w*|gemv\w*)$",
    ),
    (
        NORMALIZATIONS,
        r"softmax|layer_?norm|rms_norm|batch_norm|group_norm|nll_loss|cross_entropy|logsumexp"
        r"|::(sum|mean|var|std|norm|amax|amin|max|min|cumsum|argmax|topk|sort|linalg_vector_norm"
        r"|_foreach_norm)",
    ),
    (
        MOVEMENT,
        r"::(copy_|_to_copy|to|clone|contiguous|cat|stack|index\w*|gather|scatter\w*|embedding\w*"
        r"|pad|roll|fill_|zero_|zeros\w*|constant_pad_nd|repeat|slice_backward|select_backward"
        r"|masked_select|_local_scalar_dense|item|nonzero|empty\w*|resize_|pin_memory"
        r"|_pin_memory)$",
    ),
)
_COMPILED_KERNELS: _Patterns = (
    (NORMALIZATIONS, r"^triton_(red|per)_|softmax|layer_norm|reduce_kernel|Softmax"),
    (ELEMENTWISE, r"^triton_"),
)


@functools.cache
def group_of(kernel: str, operator: str, phase: str) -> str:
    """The group of a kernel, or of an operator on the host, launched in ``phase``."""
    # Every kernel of the update counts as the optimizer's, whatever it computes.
    updates = phase in ("optimizer", "clipping")
    return (
        _first_match(_TRANSFER_KERNELS, kernel)
        or (OPTIMIZER if updates else None)
        or _first_match(_CONTRACTION_KERNELS, kernel)
        or _first_match(_OPERATORS, operator)
        or _first_match(_COMPILED_KERNELS, kernel)
        or ELEMENTWISE
    )


def _first_match(patterns: _Patterns, name: str) -> str | None:
    return next((group for group, pattern in patterns if re.search(pattern, name)), None)


def operations(trace: Trace, step_seconds: float) -> Iterator[Entry]:
    """The parts "operations" (idle: what no kernel fills of ``step_seconds``) and "kernels"."""
    by_group: defaultdict[str, float] = defaultdict(float)
    by_kernel: defaultdict[str, float] = defaultdict(float)
    for work, phase, seconds in trace.weighted_work():
        by_group[group_of(work.kernel, work.operator, phase)] += seconds
        by_kernel[_short_name(work)] += seconds
    for group in (*GUIDE_GROUPS, MOVEMENT, COMMUNICATION, OPTIMIZER):
        if group in by_group:
            yield Entry(part="operations", name=group, value=by_group[group], unit="s")
    # The profiled step's kernels may take a little longer than the step without profiler.
    idle = max(0.0, step_seconds - busy_seconds(trace))
    yield Entry(part="operations", name=IDLE, value=idle, unit="s")
    for name, seconds in sorted(by_kernel.items(), key=lambda item: -item[1])[:12]:
        yield Entry(part="kernels", name=name, value=seconds, unit="s")


def busy_seconds(trace: Trace) -> float:
    """Seconds of a step in which at least one kernel ran; on a CPU, of all operators together."""
    if not any(work.kernel for work in trace.work):
        return sum(seconds for _, _, seconds in trace.weighted_work())
    busy = 0.0
    busy_until = 0
    # In order of their beginnings. Kernels of several streams overlap, and count once.
    for work, phase, _ in trace.weighted_work():
        not_counted_yet = max(0, work.end - max(work.begin, busy_until))
        busy += not_counted_yet * phase_weight(phase, trace.repetitions)
        busy_until = max(busy_until, work.end)
    return busy / 1e9  # the profiler counts nanoseconds


def _short_name(work: Work) -> str:
    """The operator; of a compiled kernel, its own name without arguments and templates."""
    if work.operator.startswith("aten::"):
        return work.operator.removeprefix("aten::")
    name = (work.kernel or work.operator).split("<")[0].split("(")[0]
    return name.removeprefix("void ").strip()[:80] or "?"


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
        # Each element of the left factor meets each column of the right one once.
        left, right = shapes[:2]
        return 2 * prod(left) * right[-1]
    if name == "convolution_backward":
        # The arguments are grad_output, input and weight. The forward pass does 2 operations for
        # each output element and weight that contributes to it, the backward pass twice as many.
        output, _, weight = shapes[:3]
        return 3 * 2 * prod(output) * prod(weight[1:])
    return _attention_flop(shapes, is_backward=name.endswith("_backward"))


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
