"""Weights that bitsandbytes packs in 4 bits, and their products, traced on tensors without data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

_BELOW_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


@contextmanager
def packed_weights() -> Iterator[None]:
    """A context in which bitsandbytes packs tensors without data, and multiplies as on CUDA."""
    from bitsandbytes import functional, nn

    # Made before the trace, because bitsandbytes keeps it for good.
    functional.name2qmap.setdefault("dynamic", functional.create_dynamic_map())
    with (
        torch.library._scoped_library("bitsandbytes", "IMPL") as library,
        patch.object(nn.Params4bit, "__new__", _packed),
        patch("peft.tuners.lora.dora.dequantize_module_weight", _dequantized),
    ):
        library.impl("gemm_4bit", _product, "AutogradCPU")
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


def _dequantized(module: torch.nn.Module) -> torch.Tensor:
    """PEFT's own function knows the weight by its class."""
    from bitsandbytes import functional

    weight: torch.Tensor = module.weight  # type: ignore[assignment]
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
