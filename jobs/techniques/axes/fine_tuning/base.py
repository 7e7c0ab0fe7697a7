"""Base axis: the number format of the frozen weights beside which an adapter is trained."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.axes.fine_tuning import quantized
from jobs.techniques.base import Axis, Family, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

_CONFIG_CLASS = "transformers.utils.quantization_config:BitsAndBytesConfig"
_UPCAST = {"upcast": "bool"}
"""The parameter beyond the library's: whether all that is not quantized is cast to 32 bits, as
``peft.prepare_model_for_kbit_training`` does. The default is true."""
_BITS_DECIDED = "the name of the technique decides it"


def _quantized(doc: str, place: Hook, package: str) -> Variant:
    return Variant(
        doc=doc,
        hooks={"base": place},
        requires=(f"package:{package}", "package:peft", "bf16"),
        numerical_effect="training",
        traits=("frozen_base", "quantized_base"),
    )


def _bitsandbytes(method: str, doc: str, parameters: Mapping[str, Any]) -> Variant:
    """The row of a method of ``quantized_base``."""
    arguments = {"method": method, "parameters": dict(parameters)}
    return _quantized(doc, Hook(quantized.BITSANDBYTES, arguments), "bitsandbytes")


def _family(method: str, doc: str, decided: Mapping[str, str]) -> Family:
    always_decided = {
        "load_in_4bit": _BITS_DECIDED,
        "load_in_8bit": _BITS_DECIDED,
        "llm_int8_enable_fp32_cpu_offload": "the whole model is on the GPU",
        "llm_int8_has_fp16_weight": "the base is frozen, so it needs no 16-bit copy",
    }
    return Family(
        doc=doc,
        config_class=_CONFIG_CLASS,
        build=functools.partial(_bitsandbytes, method, doc),
        decided={**always_decided, **decided},
        extra=_UPCAST,
    )


_DOCS = {
    "bnb_8bit": "LLM.int8() of bitsandbytes: linear layers in 8 bits, and outlying features in 16",
    "bnb_4bit": "QLoRA's base of bitsandbytes: linear layers in 4 bits (NF4, double quantization), "
    "computed in bf16",
}
_ONLY_4_BIT = "it is a parameter of bnb_4bit"

BASE = Axis(
    name="base",
    doc="Number format of the weights that an adapter leaves frozen",
    default="default",
    variants={
        "default": Variant(doc="The format that the precision axis gives the weights"),
        "16bit": Variant(
            doc="All weights of the model in bf16, and the adapter's own in 32 bits",
            hooks={"base": Hook("bf16_base")},
            requires=("bf16",),
            numerical_effect="rounding",
            traits=("frozen_base",),
        ),
        **{method: _bitsandbytes(method, doc, {}) for method, doc in _DOCS.items()},
        "torchao_int8": _quantized(
            "Linear layers in 8 bits by torchao's weight-only quantization",
            Hook(quantized.TORCHAO),
            "torchao",
        ),
    },
    families={
        "bnb_8bit": _family(
            "bnb_8bit",
            "The same with parameters of BitsAndBytesConfig",
            {
                "bnb_4bit_compute_dtype": _ONLY_4_BIT,
                "bnb_4bit_quant_storage": _ONLY_4_BIT,
                "bnb_4bit_quant_type": _ONLY_4_BIT,
                "bnb_4bit_use_double_quant": _ONLY_4_BIT,
            },
        ),
        "bnb_4bit": _family(
            "bnb_4bit",
            "The same with parameters of BitsAndBytesConfig; upcast: false keeps all that is not "
            "quantized in 16 bits",
            {"llm_int8_threshold": "it is a parameter of bnb_8bit"},
        ),
    },
)


@hook("bf16_base")
def bf16_base(
    make: Callable[..., torch.nn.Module], is_checkpoint: bool, device: torch.device
) -> torch.nn.Module:
    """The model that ``make`` makes, on ``device``, with all its weights in bf16.

    ``make`` is ``from_pretrained`` or ``from_config`` with all its arguments.
    """
    import torch

    if is_checkpoint:
        return make(dtype=torch.bfloat16).to(device)
    # Random weights are drawn on the device itself.
    with device:
        model = make(dtype=torch.bfloat16)
    return model.to(device)
