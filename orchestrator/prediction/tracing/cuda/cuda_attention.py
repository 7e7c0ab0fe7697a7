"""Traces attention as on CUDA: with the kernel that PyTorch picks, and the tensors it makes."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import torch

from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name
from orchestrator.prediction.gpus import REPRESENTATIVES, Gpu, load_gpu

_aten = torch.ops.aten
KERNELS = ("cudnn", "flash", "efficient", "math")
"""Kernels of scaled_dot_product_attention, the preferred ones first."""
_HALF = (torch.float16, torch.bfloat16)


def attention_kernel(
    gpu: Gpu,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float = 0.0,
    *,
    is_causal: bool = False,
    allowed: Collection[str] = KERNELS,
) -> str:
    """The first of the ``allowed`` kernels that ``select_sdp_backend`` picks; empty if none runs.

    The conditions follow aten/src/ATen/native/transformers/cuda/sdp_utils.cpp.
    """
    suits = {"math": True}
    if query.dim() == 4 and not _has_strided_rows(mask):
        # PyTorch prefers cuDNN on the data centre's GPUs since Hopper.
        is_preferred = gpu.kernels == "hopper" and query.dtype in _HALF
        suits["cudnn"] = is_preferred and _suits_cudnn(query, key, value, mask)
        inputs = (query, key, value)
        suits["flash"] = _suits_flash(gpu, inputs, mask, dropout, is_causal=is_causal)
        suits["efficient"] = _suits_efficient(gpu, query, key)
    return next((name for name in KERNELS if name in allowed and suits.get(name)), "")


def _has_strided_rows(mask: torch.Tensor | None) -> bool:
    """Whether values of a mask's row are not adjacent in memory, which no fused kernel takes: not
    PyTorch's ``check_last_dim_stride_equals_1_dense``."""
    return mask is not None and mask.shape[-1] > 1 and mask.stride(-1) != 1


def _suits_cudnn(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> bool:
    widths = (query.shape[-1], value.shape[-1])
    if max(widths) > 128 or any(width % 8 for width in widths):
        return False
    return key.shape[-2] > 1 and (mask is None or not mask.requires_grad)


Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key and value."""


def _suits_flash(
    gpu: Gpu, inputs: Inputs, mask: torch.Tensor | None, dropout: float, *, is_causal: bool
) -> bool:
    query, key, value = inputs
    if gpu.kernels == "volta" or query.dtype not in _HALF or mask is not None:
        return False
    width = query.shape[-1]
    if not (width == key.shape[-1] == value.shape[-1] and width <= 256):
        return False
    # Consumer GPUs have too little shared memory for the backward pass of wide heads.
    is_too_wide = 192 < width <= 224 or (width > 192 and dropout)
    if gpu.kernels == "consumer" and _saves_rows(inputs) and is_too_wide:
        return False
    return not is_causal or query.shape[-2] == key.shape[-2]


def _suits_efficient(gpu: Gpu, query: torch.Tensor, key: torch.Tensor) -> bool:
    is_half = query.dtype in _HALF
    if query.dtype is torch.bfloat16 and gpu.kernels == "volta":
        return False
    # The kernel loads 16 bytes at a time for tensor cores: 8 halves or 4 floats.
    floats = 1 if gpu.kernels == "volta" else 4
    alignment = 8 if is_half else floats
    return query.shape[1] == key.shape[1] and query.shape[-1] % alignment == 0


Picks = set[tuple[str, ...]]
"""The kernels of each call of attention, on each of ``REPRESENTATIVES`` in order."""


def allowed_kernels(spec: TrialSpec) -> Collection[str]:
    """The kernels that a trial's technique leaves to choose from."""
    match hook_name(spec, "kernels"):
        case "only_kernel":
            name = str(spec.settings.hooks["kernels"].arguments["kernel"])
            return (name.removeprefix("mem_"),)
        case "without_cudnn":
            return KERNELS[1:]
        case _:
            return KERNELS


def attention(gpu: Gpu, picks: Picks, allowed: Collection[str]) -> Callable[..., torch.Tensor]:
    """A ``scaled_dot_product_attention`` that makes the tensors of the kernel picked on ``gpu``. It
    raises RuntimeError if none of the ``allowed`` kernels can run.

    What other GPUs would pick is added to ``picks``.
    """
    others = [load_gpu(name) for name in REPRESENTATIVES.values()]

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        inputs = (query, key, value)
        pick = functools.partial(
            attention_kernel,
            mask=attn_mask,
            dropout=dropout_p,
            is_causal=is_causal,
            allowed=allowed,
        )
        kernel = pick(gpu, *inputs)
        picks.add(tuple(pick(other, *inputs) for other in others))
        if not kernel:
            raise RuntimeError(f"attention cannot run {' or '.join(allowed)} on these inputs")
        mask = attn_mask
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype)
        saves_rows = _saves_rows(inputs)
        outputs: Any
        if kernel == "flash":
            return _flash(inputs, dropout_p, is_causal, scale)
        if kernel == "cudnn":
            outputs = _aten._scaled_dot_product_cudnn_attention(
                *inputs, mask, saves_rows, dropout_p, is_causal, False, scale=scale
            )
        elif kernel == "efficient":
            bias = _aligned(mask, query, key)
            outputs = _aten._scaled_dot_product_efficient_attention(
                *inputs, bias, saves_rows, dropout_p, is_causal, scale=scale
            )
        else:
            outputs = _aten._scaled_dot_product_attention_math(
                *inputs, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        return outputs[0]

    return scaled_dot_product_attention


def _saves_rows(inputs: Inputs) -> bool:
    """Whether the kernel saves a figure for each row, which the backward pass needs."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)


def _flash(inputs: Inputs, dropout: float, is_causal: bool, scale: float | None) -> torch.Tensor:
    """FlashAttention on heads padded to a multiple of 8, as the kernel wants them."""
    width = inputs[0].shape[-1]
    missing = -width % 8
    padded: Any = inputs
    if missing:
        padded = [torch.nn.functional.pad(tensor, (0, missing)) for tensor in inputs]
        scale = width**-0.5 if scale is None else scale  # from the width before padding
    outputs: Any = _aten._scaled_dot_product_flash_attention(
        *padded, dropout, is_causal, False, scale=scale
    )
    output: torch.Tensor = outputs[0]
    return output[..., :width] if missing else output


def _aligned(
    mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    """The mask expanded to each query and key, with rows padded to multiples of 16 values."""
    if mask is None:
        return None
    # As ``pad_bias`` of PyTorch does; slicing hides the padding again.
    keys = key.shape[-2]
    missing = -mask.shape[-1] % 16
    if missing:
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :keys]
    return mask.expand(query.shape[0], query.shape[1], query.shape[-2], keys)


def has_no_older_kernel(query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether the kernel that older GPUs have refuses grouped queries, or the data type."""
    return query.shape[1] != key.shape[1] or query.dtype is torch.bfloat16
