"""Base axis: the number format of the weights that are frozen while an adapter is trained."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from jobs.finetuning import quantized_base
from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Family, Variant, add

if TYPE_CHECKING:
    import torch

    Make = Callable[..., torch.nn.Module]

_CONFIG_CLASS = "transformers.utils.quantization_config:BitsAndBytesConfig"
_OUR_PARAMETERS = {
    "upcast": bool,
    "dtype": Literal["bfloat16", "float16"],
    "quantize_experts": bool,
}
"""Parameters that the library's class does not have; see the hook ``quantized_base``."""
_4_BIT_VALUES = {
    "bnb_4bit_quant_type": Literal["nf4", "fp4"],
    "bnb_4bit_compute_dtype": Literal["bfloat16", "float16", "float32"],
    "bnb_4bit_quant_storage": Literal["uint8", "bfloat16", "float16", "float32"],
}
"""Parameter of bnb_4bit -> the valid values. The library accepts any text, and fails later."""
_BITS_DECIDED = "the name of the technique decides it"


def _in_16_bits_row(doc: str, base_hook: str, requirement: str = "bf16") -> Variant:
    return Variant(
        doc=doc,
        hooks={"base": Hook(base_hook)},
        requires=(requirement,),
        numerical_effect="rounding",
        traits=("frozen_base",),
    )


def _quantized(doc: str, base_hook: Hook, package: str, *arithmetic: str) -> Variant:
    return Variant(
        doc=doc,
        hooks={"base": base_hook},
        requires=(f"package:{package}", "package:peft", *arithmetic),
        numerical_effect="training",
        traits=("frozen_base", "quantized_base"),
    )


def _bitsandbytes(method: str, doc: str, parameters: Mapping[str, Any]) -> Variant:
    arguments = {"method": method, "parameters": dict(parameters)}
    arithmetic = () if parameters.get("dtype") == "float16" else ("bf16",)
    base = Hook(quantized_base.BITSANDBYTES, arguments)
    return _quantized(doc, base, "bitsandbytes", *arithmetic)


def _family(method: str, doc: str, decided: Mapping[str, str], extra: Mapping[str, Any]) -> Family:
    """``decided`` and ``extra`` are those of this method alone; see ``Family``."""
    always_decided = {
        "load_in_4bit": _BITS_DECIDED,
        "load_in_8bit": _BITS_DECIDED,
        "llm_int8_enable_fp32_cpu_offload": "the whole model is on the GPU",
        "llm_int8_has_fp16_weight": "the base is frozen, so it needs no 16-bit copy",
        "quant_method": _BITS_DECIDED,
    }
    return Family(
        doc=doc,
        config_class=_CONFIG_CLASS,
        build=functools.partial(_bitsandbytes, method, doc),
        decided={**always_decided, **decided},
        extra={**_OUR_PARAMETERS, **extra},
    )


_DOCS = {
    "bnb_8bit": "LLM.int8() of bitsandbytes: linear layers in 8 bits, and outlier features in 16",
    "bnb_4bit": "QLoRA's base of bitsandbytes: linear layers in 4 bits (NF4, double quantization), "
    "computed in bf16",
}
BASE = Axis(
    name="base",
    doc="Number format of the weights that are frozen while an adapter is trained",
    default="default",
    variants={
        "default": Variant(doc="The format that the axis `precision` sets"),
        "16bit": _in_16_bits_row(
            "Weights of the model in bf16, and weights of the adapter in 32 bits", "bf16_base"
        ),
        "16bit_fp16": _in_16_bits_row(
            "Weights of the model in fp16, and weights of the adapter in 32 bits",
            "fp16_base",
            "cuda",
        ),
        "dequantized": _in_16_bits_row(
            "Weights of a checkpoint in MXFP4 or FP8, which become bf16 while they are loaded; "
            "random weights are drawn in bf16. Weights of the adapter have 32 bits",
            "dequantized_base",
        ),
        **{method: _bitsandbytes(method, doc, {}) for method, doc in _DOCS.items()},
        "torchao_int8": _quantized(
            "Linear layers in 8 bits by torchao's weight-only quantization",
            Hook(quantized_base.TORCHAO),
            "torchao",
            "bf16",
        ),
    },
    families={
        "bnb_8bit": _family(
            "bnb_8bit",
            "bnb_8bit with parameters of BitsAndBytesConfig; upcast: false keeps weights that are "
            "not quantized in 16 bits, which are bfloat16 unless dtype is float16, and "
            "quantize_experts: true packs the experts of a mixture, too",
            dict.fromkeys(
                (*_4_BIT_VALUES, "bnb_4bit_use_double_quant"), "it is a parameter of bnb_4bit"
            ),
            {},
        ),
        "bnb_4bit": _family(
            "bnb_4bit",
            "bnb_4bit with parameters of BitsAndBytesConfig; upcast, dtype and quantize_experts as "
            "in bnb_8bit",
            {"llm_int8_threshold": "it is a parameter of bnb_8bit"},
            _4_BIT_VALUES,
        ),
    },
)
add(BASE)


@hook("bf16_base")
def bf16_base(make: Make, is_checkpoint: bool, device: torch.device) -> torch.nn.Module:
    """The model that ``make`` returns, on ``device``, with all its weights in bf16. ``make`` is
    ``from_pretrained`` or ``from_config`` with all its arguments."""
    return _in_16_bits(make, is_checkpoint, device, "bfloat16")


@hook("fp16_base")
def fp16_base(make: Make, is_checkpoint: bool, device: torch.device) -> torch.nn.Module:
    """As ``bf16_base``, with all weights in fp16."""
    return _in_16_bits(make, is_checkpoint, device, "float16")


@hook("dequantized_base")
def dequantized_base(make: Make, is_checkpoint: bool, device: torch.device) -> torch.nn.Module:
    """As ``bf16_base``, for a checkpoint whose weights are quantized. Raises ValueError if they are
    not quantized, or if transformers cannot dequantize them."""
    import torch
    from transformers.quantizers.auto import AutoQuantizationConfig

    if not is_checkpoint:
        return _in_16_bits(make, is_checkpoint, device, "bfloat16")
    partial: Any = make
    stored = getattr(partial.keywords["config"], "quantization_config", None)
    if stored is None:
        raise ValueError("the checkpoint is not quantized, so base: 16bit is the name for it")
    as_stored = AutoQuantizationConfig.from_dict(stored)
    if not hasattr(as_stored, "dequantize"):
        raise ValueError(
            f"transformers does not support dequantized weights of {type(as_stored).__name__}"
        )
    as_stored.dequantize = True
    model = make(dtype=torch.bfloat16, quantization_config=as_stored, device_map={"": device})
    for name, parameter in model.named_parameters():
        # Packed weights have 8 bits or fewer in an element.
        if parameter.element_size() < torch.bfloat16.itemsize:
            raise ValueError(f"transformers does not support dequantized weights: {name} is packed")
    return model


def _in_16_bits(
    make: Make, is_checkpoint: bool, device: torch.device, dtype: str
) -> torch.nn.Module:
    import torch

    kind = getattr(torch, dtype)
    if is_checkpoint:
        return make(dtype=kind).to(device)
    # Random weights are drawn directly on the device.
    with device:
        model = make(dtype=kind)
    return model.to(device)
