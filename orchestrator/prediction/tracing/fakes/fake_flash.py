"""The packages flash-attn and xformers without data: PyTorch's kernels, which allocate the same.

PyTorch's kernel is a copy of flash-attn's second version. Both make the output like the query, and
32-bit sums of (batch, heads, queries), or (heads, all queries) for rows in one sequence; their
gradients are like the inputs: csrc/flash_attn/flash_api.cpp and flash_attn_interface.py of
flash-attn. ``flash_attention_backward_bytes`` has what the backward pass takes for itself.
"""

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel, modeling_utils
from transformers import modeling_flash_attention_utils as flash_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import flash_attention_mask

from jobs.techniques.axes.attention import varlen_forward, xformers_forward

_aten = torch.ops.aten


@contextmanager
def flash_attention(*, deterministic: bool = False) -> Iterator[None]:
    """A context in which transformers finds the package, of any version, its Hub kernels, and
    the axis attention's ``varlen`` and ``xformers``.
    ``deterministic``: as ``full_determinism`` asks of them."""
    names = flash_utils.FLASH_ATTN_KERNEL_FALLBACK.values()
    own = {"varlen": varlen_forward, "xformers": xformers_forward}
    attention = {**dict.fromkeys(names, flash_attention_forward), **own}
    functions = (_dense, _rows, None, flash_utils._pad_input, flash_utils._unpad_input)
    forward = flash_utils._flash_attention_forward
    with (
        # Falcon's and GPT-J's files import it only where the package is.
        patch.object(builtins, forward.__name__, forward, create=True),
        _xformers(),
        # transformers remembers the functions that it imported, so what it remembers is put back.
        patch.dict(vars(flash_utils), _loaded_implementation=None),
        patch.object(flash_utils, "_lazy_imports", lambda *_, **__: functions),
        patch.object(torch, "are_deterministic_algorithms_enabled", lambda: deterministic),
        patch.object(modeling_utils, "is_kernels_available", lambda: False),
        patch.object(PreTrainedModel, "_flash_attn_import_error", lambda *_, **__: None),
        patch.dict(AttentionInterface._global_mapping, attention),
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


@dataclass(frozen=True, slots=True)
class _JoinedRows:
    """What stands for xformers' masks: causal ones, of rows in one sequence or of equal ones."""

    begins: torch.Tensor | None = None

    @classmethod
    def from_seqlens(cls, lengths: Sequence[int], device: Any = None) -> "_JoinedRows":
        return cls(torch.empty(len(lengths) + 1, dtype=torch.int32))


def _memory_efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: _JoinedRows,
    scale: float | None = None,
) -> torch.Tensor:
    """xformers' ``memory_efficient_attention`` of tensors of shape (batch, tokens, heads, width),
    whose batch is 1 for rows in one sequence."""
    inputs, begins = (query, key, value), attn_bias.begins
    if query.element_size() > 2:
        heads = (own.transpose(1, 2) for own in inputs)
        outputs = _aten._scaled_dot_product_efficient_attention(
            *heads, None, True, 0.0, True, scale=scale
        )
        return outputs[0].transpose(1, 2)
    if begins is not None:
        flat = tuple(own[0] for own in inputs)
        tokens = query.shape[1]
        return _attended(flat, (begins, begins, tokens, tokens), 0.0, True, scale)[None]
    return _dense(*inputs, softmax_scale=scale, causal=True)


_XFORMERS: dict[str, Any] = {
    "xformers": SimpleNamespace(),
    "xformers.ops": SimpleNamespace(memory_efficient_attention=_memory_efficient),
    "xformers.ops.fmha.attn_bias": SimpleNamespace(
        LowerTriangularMask=_JoinedRows, BlockDiagonalCausalMask=_JoinedRows
    ),
}


@contextmanager
def _xformers() -> Iterator[None]:
    """A context in which the axis attention finds xformers. What is imported meanwhile stays."""
    before = {name: sys.modules[name] for name in _XFORMERS if name in sys.modules}
    sys.modules.update(_XFORMERS)
    try:
        yield
    finally:
        for name in _XFORMERS:
            sys.modules.pop(name, None)
        sys.modules.update(before)


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
    outputs: Any = _aten._flash_attention_forward(*padded, *options, scale=scale)
    output: torch.Tensor = outputs[0]
    return output[..., :width] if missing else output
