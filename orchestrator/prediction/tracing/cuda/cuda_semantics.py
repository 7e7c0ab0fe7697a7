"""Makes a step on the CPU allocate what it would on CUDA: autocast's lists, dropout, softmax."""

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.amp import autocast_mode

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.tracing.cuda.cuda_attention import Picks, attention

_HALF = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten
_BELOW_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

_IN_32_BITS = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
    pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm
    cosine_similarity cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss
    smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist cdist renorm
    logsumexp
"""
"""Operators that CUDA runs in 32 bits: AT_FORALL_FP32 of aten/src/ATen/autocast_mode.h."""
_TO_32_BITS = (
    "softmax.int",
    "log_softmax.int",
    "prod",
    "cumprod",
    "cumsum",
    "sum",
    "sum.dim_IntList",
)
"""Operators whose result CUDA's autocast makes in 32 bits: AT_FORALL_FP32_SET_OPT_DTYPE."""
_BY_PARTS = ("cross_entropy_loss", "poisson_nll_loss")
"""Operators that the CPU's autocast treats as one. CUDA's autocast treats their parts.

Cross entropy's logarithm of softmax keeps 16 bits, and its result is converted to 32.
"""


@contextmanager
def cuda_semantics(gpu: Gpu, picks: Picks, kernels: Collection[str]) -> Iterator[None]:
    """A context in which operators on CPU tensors take the memory that they would on ``gpu``; the
    attention kernels that other GPUs would run are added to ``picks``. ``kernels`` are those that
    attention may run."""
    with torch.library._scoped_library("aten", "IMPL") as library, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that kernels are overridden is the purpose
        for name in _IN_32_BITS.split():
            library.impl(name, _in_32_bits(_operator(name)), "AutocastCPU")
        for name in _TO_32_BITS:
            library.impl(name, _to_32_bits(_operator(name)), "AutocastCPU")
        for name in _BY_PARTS:
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
        # Operators whose kernels on CUDA save other tensors.
        library.impl("dropout", _dropout, "AutogradCPU")
        library.impl("softmax.int", _softmax(_aten._softmax), "AutogradCPU")
        library.impl("log_softmax.int", _softmax(_aten._log_softmax), "AutogradCPU")
        library.impl("scaled_dot_product_attention", attention(gpu, picks, kernels), "AutogradCPU")
        with _one_autocast():
            yield


@contextmanager
def _one_autocast() -> Iterator[None]:
    """A context in which CUDA's autocast is that of the CPU. Without an argument, the question is
    about CUDA; ``custom_fwd`` and ``custom_bwd`` of a library name it."""
    is_enabled, dtype, autocast = (
        torch.is_autocast_enabled,
        torch.get_autocast_dtype,
        autocast_mode.autocast,
    )
    with (
        patch.object(torch, "is_autocast_enabled", lambda *_: is_enabled("cpu")),
        patch.object(torch, "get_autocast_dtype", lambda _: dtype("cpu")),
        patch.object(autocast_mode, "autocast", lambda device_type, **own: autocast("cpu", **own)),
    ):
        yield


def _operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(_aten, base), overload or "default")


def _raised(value: Any) -> Any:
    """A 16-bit tensor in 32 bits; anything else as it is."""
    if isinstance(value, torch.Tensor) and value.dtype in _HALF:
        return value.float()
    return value


def _in_32_bits(operator: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        raised = {name: _raised(value) for name, value in kwargs.items()}
        with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
            return operator(*map(_raised, args), **raised)

    return run


def _to_32_bits(operator: Any) -> Callable[..., Any]:
    """The operator with its result in 32 bits, unless the caller asked for a dtype."""

    def run(*args: Any, **kwargs: Any) -> Any:
        # A dtype that the caller gives wins over autocast's.
        is_half = args[0].dtype in _HALF
        asks_for_dtype = kwargs.get("dtype") is not None or any(
            isinstance(arg, torch.dtype) for arg in args[1:]
        )
        if is_half and not asks_for_dtype:
            args = tuple(arg for arg in args if arg is not None)
            kwargs = {**kwargs, "dtype": torch.float32}
        with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
            return operator(*args, **kwargs)

    return run


def _dropout(inputs: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """CUDA's fused kernel keeps a mask of one byte per element."""
    if not train or p == 0:
        return inputs
    return torch.native_dropout(inputs, p, True)[0]


def _softmax(kernel: Any) -> Callable[..., torch.Tensor]:
    """Softmax, after aten/src/ATen/native/SoftMax.cpp: its kernel converts fp16 to 32 bits itself;
    bf16 is copied first."""

    def run(inputs: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if dtype is torch.float32 and inputs.dtype is torch.float16:
            return kernel(inputs, dim, True)
        if dtype is not None:
            inputs = inputs.to(dtype)
        return kernel(inputs, dim, False)

    return run
