"""The package flash-attn on tensors without data: PyTorch's kernel, which allocates the same.

PyTorch's kernel is a copy of flash-attn's second version. Both make the output like the query, and
32-bit sums of (batch, heads, queries), or (heads, all queries) for rows in one sequence; their
gradients are like the inputs: csrc/flash_attn/flash_api.cpp and flash_attn_interface.py of
flash-attn. ``flash_attention_backward_bytes`` has what the backward pass takes for itself. xformers
chooses the same kernel for causal rows in 16 bits.
"""

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Self
from unittest.mock import patch

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, modeling_utils
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import flash_attention_mask

from jobs.techniques.axes.attention import varlen_forward, xformers_forward


@contextmanager
def flash_attention(*, deterministic: bool = False) -> Iterator[None]:
    """A context in which transformers finds the package, of any version, its Hub kernels, and
    the axis attention's ``varlen`` and ``xformers``.
    ``deterministic``: as ``full_determinism`` asks of them."""
    names = flash_utils.FLASH_ATTN_KERNEL_FALLBACK.values()
    attention = {**dict.fromkeys(names, flash_attention_forward), "varlen": varlen_forward}
    attention["xformers"] = xformers_forward
    functions = (_dense, _rows, None, flash_utils._pad_input, flash_utils._unpad_input)
    forward = flash_utils._flash_attention_forward
    with (
        # Falcon's and GPT-J's files import it only where the package is.
        patch.object(builtins, forward.__name__, forward, create=True),
        # transformers remembers the functions that it imported, so what it remembers is put back.
        patch.dict(vars(flash_utils), _loaded_implementation=None),
        patch.object(flash_utils, "_lazy_imports", lambda *_, **__: functions),
        patch.object(torch, "are_deterministic_algorithms_enabled", lambda: deterministic),
        patch.object(modeling_utils, "is_kernels_available", lambda: False),
        patch.object(PreTrainedModel, "_flash_attn_import_error", lambda *_, **__: None),
        patch.dict(AttentionInterface._global_mapping, attention),
        patch.dict(sys.modules, _xformers()),
        patch.dict(
            AttentionMaskInterface._global_mapping, dict.fromkeys(names, flash_attention_mask)
        ),
    ):
        # Those files name no version of the package either: it is the one that was loaded last.
        flash_utils.lazy_import_flash_attention("flash_attention_2")
        yield


def _dense(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """``flash_attn_func`` of tensors of shape (batch, tokens, heads, width)."""
    sizes = query.shape[1], key.shape[1]
    return _attended((query, key, value), (None, None, *sizes), dropout_p, causal, softmax_scale)


def _rows(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """``flash_attn_varlen_func`` of tensors of shape (all tokens, heads, width)."""
    begins = (cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    return _attended((query, key, value), begins, dropout_p, causal, softmax_scale)


class _RowsMask:
    """Of xformers: the rows of one sequence, each of which sees its own positions."""

    @classmethod
    def from_seqlens(cls, lengths: Sequence[int], *, device: torch.device) -> Self:
        own = cls()
        own.begins = torch.empty(len(lengths) + 1, dtype=torch.int32)
        return own

    begins: torch.Tensor | None = None


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: _RowsMask,
    scale: float | None,
) -> torch.Tensor:
    """``memory_efficient_attention`` of tensors of shape (batch, tokens, heads, width)."""
    if attn_bias.begins is None:
        return _dense(query, key, value, softmax_scale=scale, causal=True)
    rows = attn_bias.begins, attn_bias.begins, query.shape[1], query.shape[1]
    flat = tuple(own.flatten(0, 1) for own in (query, key, value))
    return _attended(flat, rows, 0.0, True, scale).view_as(query)


def _xformers() -> dict[str, ModuleType]:
    """The modules of xformers that the axis attention imports."""
    names = ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias")
    modules: dict[str, Any] = {name: ModuleType(name) for name in names}
    modules["xformers.ops"].memory_efficient_attention = _efficient
    masks = modules["xformers.ops.fmha.attn_bias"]
    masks.LowerTriangularMask = masks.BlockDiagonalCausalMask = _RowsMask
    return modules


def _attended(
    inputs: tuple[torch.Tensor, ...], rows: Any, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    """The attention of heads padded to a multiple of 8, as the package does it."""
    width = inputs[0].shape[-1]
    missing = -width % 8
    padded: Any = inputs
    if missing:
        padded = [torch.nn.functional.pad(own, (0, missing)) for own in inputs]
    padded = [own if own.stride(-1) == 1 else own.contiguous() for own in padded]
    options = (*rows, dropout, causal, False)
    outputs: Any = torch.ops.aten._flash_attention_forward(*padded, *options, scale=scale)
    output: torch.Tensor = outputs[0]
    return output[..., :width] if missing else output
