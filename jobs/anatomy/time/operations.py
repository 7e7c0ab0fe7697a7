"""A step's time by kind of operation: the guide's three groups, and what is none of them."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from jobs.anatomy.trace import Trace, Work
from jobs.anatomy_record import Entry

CONTRACTIONS = "tensor contractions"
NORMALIZATIONS = "statistical normalizations"
ELEMENTWISE = "element-wise operators"
THREE = (CONTRACTIONS, NORMALIZATIONS, ELEMENTWISE)
MOVEMENT = "data movement"
COMMUNICATION = "communication"
OPTIMIZER = "optimizer and clipping"
IDLE = "idle"
MOST_KERNELS = 12

# The first that matches decides. Fused kernels count as the largest part of what they do: attention as contraction,
# a compiled kernel with a reduction in it as normalization.
_KERNELS = (
    (COMMUNICATION, r"nccl|gloo|c10d"),
    (MOVEMENT, r"^Mem(cpy|set)"),
    (
        CONTRACTIONS,
        r"gemm|gemv|nvjet|cutlass|xmma|fmha|flash|attention|sdpa|conv|wgrad|dgrad|triton_tem|splitK|cublas|grouped_mm",
    ),
)
_OPERATORS = (
    (COMMUNICATION, r"c10d|nccl|gloo|all_?reduce|all_?gather|reduce_scatter|broadcast_"),
    (
        CONTRACTIONS,
        r"::(mm|addmm|bmm|baddbmm|matmul|linear|addmv|mv|dot|einsum|_?grouped_mm|mkldnn\w*|cudnn_conv\w*"
        r"|_?conv\w*|thnn_conv\w*|_scaled_dot_product\w*|_flash_attention\w*|_efficient_attention\w*"
        r"|_cudnn_attention\w*|_flash_attn\w*|gemv\w*)$",
    ),
    (
        NORMALIZATIONS,
        r"softmax|layer_?norm|rms_norm|batch_norm|group_norm|nll_loss|cross_entropy|logsumexp"
        r"|::(sum|mean|var|std|norm|amax|amin|max|min|cumsum|argmax|topk|sort|linalg_vector_norm|_foreach_norm)",
    ),
    (
        MOVEMENT,
        r"::(copy_|_to_copy|to|clone|contiguous|cat|stack|index\w*|gather|scatter\w*|embedding\w*|pad|roll|fill_|zero_"
        r"|zeros\w*|constant_pad_nd|repeat|slice_backward|select_backward|masked_select|_local_scalar_dense|item"
        r"|nonzero|empty\w*|resize_|pin_memory|_pin_memory)$",
    ),
)
_COMPILED = (
    (NORMALIZATIONS, r"^triton_(red|per)_|softmax|layer_norm|reduce_kernel|Softmax"),
    (ELEMENTWISE, r"^triton_"),
)


def group_of(work: Work, phase: str) -> str:
    """The group of a kernel, or on the host of an operator, by the phase that it was launched in."""
    return _group(work.kernel, work.operator, phase)


@functools.cache
def _group(kernel: str, operator: str, phase: str) -> str:
    for group, pattern in _KERNELS[:2]:
        if re.search(pattern, kernel):
            return group
    if phase in ("optimizer", "clipping"):
        return OPTIMIZER
    for name, patterns in ((kernel, _KERNELS[2:]), (operator, _OPERATORS), (kernel, _COMPILED)):
        for group, pattern in patterns:
            if name and re.search(pattern, name):
                return group
    return ELEMENTWISE


def operations(
    trace: Trace, phase_at: Callable[[int], str], step_seconds: float
) -> Iterator[Entry]:
    """The parts "operations" and "kernels". ``step_seconds`` is a step's time when nobody profiles it: its idle part
    is what no kernel ran in. Without a GPU what is left is the host's own time between the operators."""
    seconds: defaultdict[str, float] = defaultdict(float)
    single: defaultdict[str, float] = defaultdict(float)
    for work in trace.work:
        phase = phase_at(work.launched)
        spent = work.seconds * trace.weight(phase)
        seconds[group_of(work, phase)] += spent
        single[_called(work)] += spent
    for group in (*THREE, MOVEMENT, COMMUNICATION, OPTIMIZER):
        if group in seconds:
            yield Entry(part="operations", name=group, value=seconds[group], unit="s")
    yield Entry(
        part="operations",
        name=IDLE,
        value=max(0.0, step_seconds - busy_seconds(trace, phase_at)),
        unit="s",
    )
    for name, spent in sorted(single.items(), key=lambda pair: -pair[1])[:MOST_KERNELS]:
        yield Entry(part="kernels", name=name, value=spent, unit="s")


def busy_seconds(trace: Trace, phase_at: Callable[[int], str]) -> float:
    """Time of a step in which at least one kernel ran; without a GPU, that of all operators together."""
    if not any(work.kernel for work in trace.work):
        return sum(work.seconds * trace.weight(phase_at(work.launched)) for work in trace.work)
    busy, until = 0.0, 0
    for work in trace.work:
        busy += max(0, work.end - max(work.begin, until)) * trace.weight(phase_at(work.launched))
        until = max(until, work.end)
    return busy / 1e9


def _called(work: Work) -> str:
    """The operator, or the kernel's own name where a compiler made it; without arguments and templates."""
    if work.operator.startswith("aten::"):
        return work.operator.removeprefix("aten::")
    return (work.kernel or work.operator).split("<")[0].split("(")[0].removeprefix("void ").strip()[
        :80
    ] or "?"
