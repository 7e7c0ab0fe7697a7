"""A step's time by kind of operation: the three groups of the Hugging Face guide, and the rest."""

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from jobs.anatomy.trace import Trace, Work, phase_weight
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
