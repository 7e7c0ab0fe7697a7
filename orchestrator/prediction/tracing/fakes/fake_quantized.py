"""Weights that bitsandbytes packs in 4 or 8 bits, and their products, without data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

_BELOW_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_OUTLIERS = 6
"""Features with outliers in each product, which depend on the data: as many as large models have in
nearly all layers (Dettmers et al. 2022, section 4.1). They take little memory, but change where
other tensors lie."""


@contextmanager
def packed_weights() -> Iterator[None]:
    """A context in which bitsandbytes packs tensors without data, and multiplies as on CUDA."""
    from bitsandbytes import functional, nn
    from bitsandbytes.autograd import _functions

    # Made before the trace, because bitsandbytes keeps it for good.
    functional.name2qmap.setdefault("dynamic", functional.create_dynamic_map())
    with (
        torch.library._scoped_library("bitsandbytes", "IMPL") as library,
        patch.object(nn.Params4bit, "__new__", _packed),
        patch.object(nn.Int8Params, "__new__", _packed_in_8_bits),
        # A host has products of its own, which bitsandbytes chooses by the device.
        patch.object(_functions, "MatMul8bitFp", _functions.MatMul8bitLt),
        patch.object(_functions, "_is_compiling", lambda: True),  # so it does not log its casts
        patch("peft.tuners.lora.dora.dequantize_module_weight", _dequantized),
    ):
        for name, kernel in _KERNELS.items():
            library.impl(name, kernel, "AutogradCPU")
        yield


def _packed(
    _: type,
    data: torch.Tensor,
    requires_grad: bool = False,
    *,
    quant_state: Any = None,
    blocksize: int | None = None,
    compress_statistics: bool = True,
    quant_type: str = "fp4",
    quant_storage: torch.dtype = torch.uint8,
    **_others: Any,
) -> torch.nn.Parameter:
    """A plain parameter in place of bitsandbytes' own class, which cannot have a fake tensor's
    data. Its values are packed at once; that class packs them when they are moved."""
    from bitsandbytes import functional

    form: dict[str, Any] = {
        "blocksize": blocksize or 64,
        "compress_statistics": compress_statistics,
        "quant_type": quant_type,
        "quant_storage": quant_storage,
    }
    if not data.is_meta:
        data, quant_state = functional.quantize_4bit(data, **form)
    parameter = torch.nn.Parameter(data, requires_grad=requires_grad)
    for name, value in {**form, "quant_state": quant_state}.items():
        setattr(parameter, name, value)
    return parameter


def _packed_in_8_bits(
    _: type,
    data: torch.Tensor,
    requires_grad: bool = False,
    has_fp16_weights: bool = False,
    CB: torch.Tensor | None = None,
    SCB: torch.Tensor | None = None,
    **_others: Any,
) -> torch.nn.Parameter:
    """The same for 8 bits: codes ``CB``, and a scale for each row ``SCB``."""
    if not data.is_meta and CB is None:
        CB, SCB, _outliers = torch.ops.bitsandbytes.int8_vectorwise_quant(data.half())
        data = CB
    parameter = torch.nn.Parameter(data, requires_grad=False)
    for name, value in {"CB": CB, "SCB": SCB, "has_fp16_weights": has_fp16_weights}.items():
        setattr(parameter, name, value)
    return parameter


def _dequantized(module: torch.nn.Module) -> torch.Tensor:
    """PEFT's own function knows the weight by its class."""
    from bitsandbytes import functional

    weight: torch.Tensor = module.weight  # type: ignore[assignment]
    if weight.dtype == torch.int8:
        scales: Any = module.state.SCB if weight.SCB is None else weight.SCB  # type: ignore
        return functional.int8_vectorwise_dequant(weight.data, scales)
    state = getattr(weight, "quant_state", None)
    return weight if state is None else functional.dequantize_4bit(weight.data, state)


def _product(
    inputs: torch.Tensor,
    packed: torch.Tensor,
    shape: Sequence[int],
    scales: torch.Tensor,
    blocksize: int,
    quant_type: str,
    bias: torch.Tensor | None = None,
    absmax_8bit: torch.Tensor | None = None,
    absmax_code: torch.Tensor | None = None,
    absmax_offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """The product as ``_dequant_linear_fallback`` of bitsandbytes' CUDA backend computes it, from a
    whole dequantized weight. For a few dozen rows, kernels of their own do without it."""
    operators = torch.ops.bitsandbytes
    with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
        if absmax_8bit is not None:
            nested = (absmax_8bit, scales, absmax_code, 256, torch.float32)
            scales = operators.dequantize_blockwise(*nested) + absmax_offset
        arguments = (packed, scales, blocksize, quant_type, shape, inputs.dtype)
        weight = operators.dequantize_4bit(*arguments)
        return torch.nn.functional.linear(inputs, weight, bias)


def _quantized_rows(
    inputs: torch.Tensor, threshold: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The rows in 8 bits, a scale for each, and the features that are outliers in some row."""
    if inputs.ndim > 3:  # the product raises on CUDA
        raise ValueError(f"LLM.int8() does not support inputs of {inputs.ndim} dimensions")
    scales = inputs.new_empty(inputs.numel() // inputs.shape[-1], dtype=torch.float32)
    codes = torch.empty_like(inputs, dtype=torch.int8)
    if not threshold:
        return codes, scales, None
    is_outlier = inputs.abs() >= threshold
    outliers = is_outlier.any(dim=0)[:_OUTLIERS].long()
    return codes, scales, outliers


def _product_in_8_bits(
    codes: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    weight_scales: torch.Tensor,
    bias: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The product in integers of 32 bits, which a kernel scales to fp16."""
    sums = codes.new_empty((*codes.shape[:-1], weight.shape[0]), dtype=torch.int32)
    product = torch.empty_like(sums, dtype=torch.float16)
    if bias is not None:
        product.add_(bias)
    return product.to(dtype or torch.float16)


def _product_with_outliers(
    inputs: torch.Tensor,
    codes: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    weight_scales: torch.Tensor,
    outliers: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, plus the product of the outliers in the inputs' own format."""
    with torch._C._ExcludeDispatchKeyGuard(_BELOW_AUTOCAST):
        columns = inputs[:, outliers]
        rows = weight[:, outliers].to(inputs.dtype).t()
        product = _product_in_8_bits(codes, weight, scales, weight_scales, bias, inputs.dtype)
        return product.addmm(columns, rows), columns


_KERNELS = {
    "gemm_4bit": _product,
    "int8_vectorwise_quant": _quantized_rows,
    "int8_scaled_mm": _product_in_8_bits,
    "int8_mixed_scaled_mm": _product_with_outliers,
}
"""Operators of bitsandbytes -> what takes the memory of their CUDA kernels."""
