"""What a traced operator does on a GPU: its kind, its arithmetic, and the memory that it moves."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from orchestrator.prediction.time.operations import (
    COLLECTIVES,
    LIBRARY_OPTIMIZER,
    OPTIMIZER,
    Access,
    Operation,
)
from orchestrator.prediction.tracing.known_values import tensors

_aten = torch.ops.aten
_FORMATS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_NAMES = {
    "products": "mm addmm bmm baddbmm _grouped_mm convolution convolution_backward",
    "loss": "_log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward",
    "rows": "embedding embedding_dense_backward index index_put index_put_ index_select index_add "
    "index_add_ gather scatter scatter_ scatter_add",
    "reductions": "native_layer_norm native_layer_norm_backward native_group_norm sum mean "
    "native_group_norm_backward _softmax _softmax_backward_data",
    "copies": "_to_copy clone copy_ cat fill_ zero_ zeros_like zeros full all_gather_copy_in "
    "split_with_sizes_copy chunk_cat",
    "all-gather": "_allgather_base_",
    "reduce-scatter": "_reduce_scatter_base_",
    "all-reduce": "allreduce_ all_reduce",
    "": "empty empty_like empty_strided new_empty new_empty_strided _unsafe_view lift_fresh "
    "broadcast_ wait_tensor",
}
"""Kind -> its operators, "" for those without a kernel. Others are elementwise, or reduce."""
_ATTENTION = {
    f"_scaled_dot_product_{name}_attention{direction}": f"{name} attention{direction}"
    for name in ("cudnn", "flash", "efficient")
    for direction in ("", "_backward")
}
_ATTENTION |= {
    f"_flash_attention_{direction}": f"flash attention{end}"
    for direction, end in (("forward", ""), ("backward", "_backward"))
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()} | _ATTENTION


def operation(
    func: Any, args: tuple[Any, ...], output: Any, phase: str, number: Callable[[Any], int]
) -> Operation | None:
    """The operation of a call, None if it runs no kernel; ``number`` is that of a storage."""
    library, _, name = func._schema.name.partition("::")
    kind = _KINDS.get(name, "elementwise")
    if func.is_view or not kind:
        return None
    reads = [*tensors(args)]
    # FSDP2 copies into tensors that a keyword names.
    writes = _writes(func, args, output) or (reads if kind == "copies" else [])
    if not writes:
        return None
    moved = _moved(kind, reads, writes, number)
    number_format, flop, sizes = _work(name, func, args, output)
    kind = f"{number_format}{kind}"
    if phase == "update" and kind not in COLLECTIVES:
        kind = OPTIMIZER if library == "aten" else LIBRARY_OPTIMIZER
    is_recomputed = torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1
    return Operation(kind, phase, flop, *moved, is_recomputed, sizes)


def _moved(
    kind: str,
    reads: Sequence[torch.Tensor],
    writes: Sequence[torch.Tensor],
    number: Callable[[torch.Tensor], int],
) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """What an operator reads, and what it writes."""
    if kind in COLLECTIVES:
        return (), ((number(reads[0]), max(map(_nbytes, reads))),)
    # Of a table, no more is read than is taken from it.
    most = sum(map(_nbytes, writes)) if kind == "rows" else sys.maxsize
    return (
        tuple((number(own), min(_nbytes(own), most)) for own in reads),
        tuple((number(own), _nbytes(own)) for own in writes),
    )


def _work(
    name: str, func: Any, args: tuple[Any, ...], output: Any
) -> tuple[str, int, tuple[int, int, int, int]]:
    """Number format, floating-point operations and sizes of a product or an attention."""
    numbers = (own.dtype for own in tensors(args) if own.is_floating_point())
    formats = [_FORMATS.get(own, "fp32") for own in numbers] or ["fp32"]
    if name in _ATTENTION:
        return f"{formats[0]} ", *_attention_work(func, args)
    if _KINDS.get(name) != "products":
        return "", 0, (0, 0, 0, 0)
    sizes = _product_sizes(name, args, output)
    # Two operations for each multiplication with its addition.
    return f"{formats[-1]} {'grouped ' * (name == '_grouped_mm')}", 2 * prod(sizes), sizes


def _writes(func: Any, args: tuple[Any, ...], output: Any) -> list[torch.Tensor]:
    """The arguments that an operator writes; its results if there are none."""
    return [own for index in _written(func) for own in tensors(args[index])] or [*tensors(output)]


@functools.cache
def _written(func: Any) -> tuple[int, ...]:
    """Positions of the arguments that an operator writes."""
    arguments = enumerate(func._schema.arguments)
    return tuple(
        index
        for index, own in arguments
        if own.alias_info is not None and own.alias_info.is_write and not own.kwarg_only
    )


def _nbytes(tensor: torch.Tensor) -> int:
    """Bytes of memory: an expanded tensor is in memory once."""
    return min(tensor.nbytes, tensor.untyped_storage().nbytes())


def _product_sizes(name: str, args: tuple[Any, ...], output: Any) -> tuple[int, int, int, int]:
    """How many products, their rows, columns and depth."""
    if name == "convolution":
        channels, *depth = args[1].shape
        return 1, output.numel() // channels, channels, prod(depth)
    if name == "convolution_backward":
        # One product for the gradient of the images, and one for that of the weight.
        channels, *columns = args[2].shape
        return sum(args[-1][:2]), args[0].numel() // channels, prod(columns), channels
    left, right = args[1:3] if name in ("addmm", "baddbmm") else args[:2]
    # A group of ``_grouped_mm`` has its own rows, so that each of them meets one matrix.
    return prod(left.shape[:-2]), left.shape[-2], right.shape[-1], left.shape[-1]


def _attention_work(func: Any, args: tuple[Any, ...]) -> tuple[int, tuple[int, int, int, int]]:
    """Floating-point operations; and how many scores an attention computes, for how many of them
    dropout draws a number, and how many a mask changes."""
    given = dict(zip((own.name for own in func._schema.arguments), args, strict=False))
    query, value = given["query"], given["value"]
    # A causal kernel skips the blocks of later keys.
    scores = prod(query.shape[:-1]) * _keys(func, given) // (1 + bool(given.get("is_causal")))
    # Two products forward; five backward, because the scores are computed again.
    flop = 2 * scores * (query.shape[-1] + value.shape[-1])
    if "out" in given:
        flop = flop * 5 // 2
    is_masked = given.get("attn_bias") is not None
    return flop, (scores, scores * bool(given.get("dropout_p")), scores * is_masked, 0)


def _keys(func: Any, given: Mapping[str, Any]) -> int:
    """How many keys each query of an attention meets."""
    key = given["key"]
    if "cum_seq_q" not in given or "_scaled" in func._schema.name:
        return key.shape[-2]
    # Tokens come before heads. Rows in one sequence meet their own keys alone.
    begins = given["cum_seq_q"]
    return key.shape[-3] if begins is None else key.shape[0] // max(1, begins.numel() - 1)
