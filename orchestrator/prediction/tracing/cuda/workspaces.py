"""The temporary memory that kernels take while a traced operator runs on CUDA."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
import torch.nn.attention.varlen  # its operators exist once it is imported

_aten = torch.ops.aten
Workspace = tuple[str, tuple[int, ...]]
"""The name of a formula in ``kernel_memory.FORMULAS``, and the integers to apply it to."""
Arguments = tuple[Any, ...]


_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}
_PRODUCTS |= {_aten.mm.out, _aten.addmm_.default, _aten.addmm.dtype_out}


def libraries(operator: Any, args: Arguments) -> Sequence[str]:
    """Those that have a workspace in every thread that runs the operator."""
    if operator not in _PRODUCTS:
        return ()
    # A product with a bias goes through cuBLASLt, which has a workspace of its own.
    with_bias = operator is _aten.addmm.default and args[0].dim() == 1
    return ("cublas", "cublaslt") if with_bias else ("cublas",)


def workspaces(operator: Any, args: Arguments) -> Iterator[Workspace]:
    if operator in _BY_OPERATOR:
        yield from _BY_OPERATOR[operator](args)


def _sum(args: Arguments) -> Iterator[Workspace]:
    yield "column_sum", _layout(args[0], args[1] if len(args) > 1 else None)


def _softmax_backward(args: Arguments) -> Iterator[Workspace]:
    gradient = args[0]
    yield "tensor", (gradient.numel() * gradient.element_size(),)  # gradient times output


def _layer_norm_backward(args: Arguments) -> Iterator[Workspace]:
    """One workspace for the weight and one for the bias, if they get a gradient."""
    inputs, shape = args[1:3]
    weight, bias, output_mask = args[5:8]
    width = prod(shape)
    rows = inputs.numel() // width
    for parameter, is_wanted in zip((weight, bias), output_mask[1:], strict=True):
        if parameter is not None and is_wanted:
            yield "layer_norm_backward", (rows, width, parameter.element_size())


def _embedding_backward(args: Arguments) -> Iterator[Workspace]:
    gradient, indices, rows = args[:3]
    yield "embedding_backward", (indices.numel(), rows, gradient.shape[-1])


def _cudnn_attention_backward(args: Arguments) -> Iterator[Workspace]:
    query, key = args[1:3]
    yield "cudnn_attention_backward", (*_pairs(query, key), key.shape[1])


def _flash_attention_backward(args: Arguments) -> Iterator[Workspace]:
    """Of scaled_dot_product_attention, whose heads come before its tokens."""
    query, key = args[1:3]
    yield from _flash(*_pairs(query, key), key.shape[1], False)


def _own_flash_attention_backward(args: Arguments) -> Iterator[Workspace]:
    """Of rows in a batch, or of rows in one sequence, which begin at ``begins``."""
    query, key, begins = args[1], args[2], args[6]
    (heads, width), key_heads = query.shape[-2:], key.shape[-2]
    rows = query.shape[0] if begins is None else begins.numel() - 1
    lengths = (query.shape[-3], key.shape[-3])
    yield from _flash(rows, heads, *lengths, width, key_heads, begins is not None)


def _flash(*sizes: int) -> Iterator[Workspace]:
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    yield "flash_attention_backward", tuple(map(int, (*sizes, is_deterministic)))


def _efficient_attention_backward(args: Arguments) -> Iterator[Workspace]:
    query, key = args[1:3]
    yield "efficient_attention_backward", (*_pairs(query, key), query.element_size())


_BY_OPERATOR: Mapping[Any, Callable[[Arguments], Iterator[Workspace]]] = {
    _aten.sum.dim_IntList: _sum,
    _aten.mean.dim: _sum,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten._scaled_dot_product_cudnn_attention_backward.default: _cudnn_attention_backward,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_attention_backward,
    _aten._flash_attention_backward.default: _own_flash_attention_backward,
    torch.ops.torch_attn._varlen_attn_backward.default: _own_flash_attention_backward,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_attention_backward,
}


def _layout(tensor: torch.Tensor, dims: Any) -> tuple[int, ...]:
    """Each dimension's size, its stride, and 1 if it is summed. Without ``dims`` all are summed."""
    # Negative dimensions count from the end.
    reduced = {dim % tensor.dim() for dim in dims or range(tensor.dim())}
    layout: list[int] = []
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        layout += [size, stride, int(dim in reduced)]
    return tuple(layout)


def _pairs(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int, int, int, int]:
    """Sizes of attention's inputs: batch, heads, queries, keys and width."""
    batch, heads, queries, width = query.shape
    return batch, heads, queries, key.shape[2], width
