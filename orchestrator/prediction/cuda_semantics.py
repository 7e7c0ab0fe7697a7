"""A step traced on the CPU made to do what CUDA does: autocast's lists, fused dropout, softmax, attention kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from orchestrator.prediction.gpus import Gpu

_HALF = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten
_BELOW_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

# CUDA's autocast runs these in 32 bits (AT_FORALL_FP32 and AT_FORALL_FP32_SET_OPT_DTYPE of
# aten/src/ATen/autocast_mode.h); the CPU's lets most of them run in 16.
_IN_32_BITS = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm group_norm cosine_similarity cosine_embedding_loss nll_loss
    nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist cdist renorm logsumexp
"""
# Only the CPU's autocast takes these as one operator; CUDA's sees their parts: cross entropy's logarithm of softmax
# keeps 16 bits, and what is raised to 32 is its result.
_BY_PARTS = ("cross_entropy_loss", "poisson_nll_loss")
_TO_32_BITS = (
    "softmax.int",
    "log_softmax.int",
    "prod",
    "cumprod",
    "cumsum",
    "sum",
    "sum.dim_IntList",
)


@contextmanager
def cuda_semantics(gpu: Gpu) -> Iterator[None]:
    """Operators on CPU tensors behave, as far as memory goes, as they would on ``gpu``. Undone on leaving."""
    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that kernels are overridden is the purpose
        for name in _IN_32_BITS.split():
            library.impl(name, _in_32_bits(_operator(name)), "AutocastCPU")
        for name in _TO_32_BITS:
            library.impl(name, _to_32_bits(_operator(name)), "AutocastCPU")
        for name in _BY_PARTS:
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("softmax.int", _softmax(_aten._softmax), "AutogradCPU")
        library.impl("log_softmax.int", _softmax(_aten._log_softmax), "AutogradCPU")
        library.impl("scaled_dot_product_attention", _attention(gpu), "AutogradCPU")
        yield


def _operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(_aten, base), overload or "default")


def _raised(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value


def _in_32_bits(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
            return operator(
                *map(_raised, args), **{name: _raised(value) for name, value in kwargs.items()}
            )

    return run


def _to_32_bits(operator: Any) -> Callable[..., Any]:
    """The result in 32 bits, unless the caller asked for a dtype."""

    def run(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("dtype") or next(
            (arg for arg in args[1:] if isinstance(arg, torch.dtype)), None
        )
        with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
            if asked is None and args[0].dtype in _HALF:
                return operator(
                    *(arg for arg in args if arg is not None), **{**kwargs, "dtype": torch.float32}
                )
            return operator(*args, **kwargs)

    return run


def _dropout(inputs: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """CUDA's fused kernel keeps a mask of one byte an element."""
    if not train or p == 0:
        return inputs
    return torch.native_dropout(inputs, p, True)[0]


def _softmax(kernel: Any) -> Callable[..., torch.Tensor]:
    """From fp16 to 32 bits in one kernel; bf16 is copied first (``softmax`` in aten/src/ATen/native/SoftMax.cpp)."""

    def run(inputs: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if dtype is torch.float32 and inputs.dtype is torch.float16:
            return kernel(inputs, dim, True)
        return kernel(inputs if dtype is None else inputs.to(dtype), dim, False)

    return run


def attention_kernel(
    gpu: Gpu, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> str:
    """The kernel that ``select_sdp_backend`` picks (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp)."""
    half, width = query.dtype in _HALF, query.shape[-1]
    same_width = width == key.shape[-1] == value.shape[-1]
    # check_last_dim_stride_equals_1_dense: a permuted position bias is for none of the fused kernels.
    rows_apart = mask is not None and mask.shape[-1] > 1 and mask.stride(-1) != 1
    if query.dim() != 4 or rows_apart:
        return "math"
    fits_cudnn = (
        max(width, value.shape[-1]) <= 128
        and width % 8 == value.shape[-1] % 8 == 0
        and key.shape[-2] > 1
    )
    if half and gpu.cudnn_attention and fits_cudnn and (mask is None or not mask.requires_grad):
        return "cudnn"
    if half and mask is None and same_width and width <= 256:
        return "flash"
    if query.shape[1] == key.shape[1] and width % (8 if half else 4) == 0:
        return "efficient"
    return "math"


def _attention(gpu: Gpu) -> Callable[..., torch.Tensor]:
    def run(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        kernel = attention_kernel(gpu, query, key, value, attn_mask)
        rows = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        mask = attn_mask
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype)
        if kernel == "cudnn":
            return _aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, rows, dropout_p, is_causal, False, scale=scale
            )[0]
        if kernel == "flash":
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if kernel == "efficient":
            return _aten._scaled_dot_product_efficient_attention(
                query,
                key,
                value,
                _aligned(mask, query, key),
                rows,
                dropout_p,
                is_causal,
                scale=scale,
            )[0]
        return _aten._scaled_dot_product_attention_math(
            query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]

    return run


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """The kernel wants widths that are multiples of 8."""
    width = query.shape[-1]
    if missing := -width % 8:
        query, key, value = (
            torch.nn.functional.pad(tensor, (0, missing)) for tensor in (query, key, value)
        )
        scale = width**-0.5 if scale is None else scale
    out: torch.Tensor = _aten._scaled_dot_product_flash_attention(
        query, key, value, dropout, causal, False, scale=scale
    )[0]
    return out[..., :width] if missing else out


def _aligned(
    mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor | None:
    """A bias of one value a pair, its rows padded to multiples of 16."""
    if mask is None:
        return None
    keys = key.shape[-2]
    if missing := -mask.shape[-1] % 16:
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :keys]
    return mask.expand(query.shape[0], query.shape[1], query.shape[-2], keys)
