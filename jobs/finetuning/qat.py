"""QAT axis: training for a quantization to come (quantization-aware training), by torchao."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Family, Variant, add

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """How many weights of a row share a scale."""

    group_size: int = 32


_DOCS = {
    "int8_int4": "Linear layers round weights to 4 bits and their inputs to 8 in each forward "
    "pass, so the model learns to work with them; weights keep their format, and steps take longer",
    "int4": "As int8_int4, with weights alone rounded to 4 bits",
    "fp8": "As int8_int4, with weights and inputs rounded to FP8, one scale per row",
    "fp8_int4": "As int8_int4, with weights rounded to 4 bits in groups of 128, and inputs to FP8",
    "mxfp4": "As int8_int4, with weights and inputs rounded to MXFP4; products are computed in 16 "
    "bits, so this runs on any GPU",
    "nvfp4": "As int8_int4, with weights and inputs rounded to NVFP4 and multiplied in it, which "
    "needs a Blackwell GPU",
}
_REQUIRES = {"nvfp4": ("capability>=10.0",)}
"""Scheme -> what it requires besides torchao."""


def _variant(scheme: str, parameters: Mapping[str, Any]) -> Variant:
    return Variant(
        doc=_DOCS[scheme],
        hooks={"rounding": Hook("fake_quantized_linears", {"scheme": scheme, **parameters})},
        requires=("package:torchao", *_REQUIRES.get(scheme, ())),
        numerical_effect="training",
        traits=("fake_quantized",),
    )


QAT = Axis(
    name="qat",
    doc="Training for a quantization to come: which number format the weights learn to have",
    default="none",
    variants={
        "none": Variant(doc="No rounding: linear layers compute with the weights as they are"),
        **{scheme: _variant(scheme, {}) for scheme in _DOCS},
    },
    families={
        scheme: Family(
            doc=f"{scheme} with a group_size: the number of weights that share a scale",
            config_class="jobs.finetuning.qat:Groups",
            build=functools.partial(_variant, scheme),
            problem=lambda parameters: (
                "group_size must be at least 1" if parameters.get("group_size", 32) < 1 else ""
            ),
        )
        for scheme in ("int8_int4", "int4")
    },
)
add(QAT)

# Sides of a matrix must be multiples of the block that shares a scale. torchao fixes these blocks:
# the OCP MX specification has 32, NVFP4 has 16. Others are the group size.
_BLOCKS = {"fp8": 1, "fp8_int4": 128, "mxfp4": 32, "nvfp4": 16}


@hook("fake_quantized_linears")
def fake_quantized_linears(
    model: torch.nn.Module, task: Task, arguments: Any, *, scheme: str, group_size: int = 32
) -> torch.nn.Module:
    """``model`` whose linear layers round weights and inputs as a quantized model would. This is
    the "prepare" step of torchao's QATConfig. The output layer and layers with fewer inputs than a
    block are left out. Raises ValueError if no layer is converted."""
    from torchao.quantization import quantize_

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    block = _BLOCKS.get(scheme, group_size)
    converted: list[str] = []

    def takes_rounding(module: Any, name: str) -> bool:
        # The test is for the exact class: a quantized layer is a subclass of a linear layer.
        is_plain = type(module).__name__ in ("Linear", "NonDynamicallyQuantizableLinear")
        if is_plain and module is not head and module.in_features % block == 0:
            converted.append(name)
            return True
        return False

    quantize_(model, _preparation(scheme, group_size), filter_fn=takes_rounding)
    if not converted:
        raise ValueError(
            f"{type(model).__name__} does not support qat: no linear layer has inputs that are a "
            f"multiple of {block}"
        )
    return model


def _preparation(scheme: str, group_size: int) -> Any:
    import torch
    from torchao import quantization
    from torchao.quantization.qat import QATConfig

    if scheme == "mxfp4":
        from torchao.prototype.qat import MXFakeQuantizeConfig

        blocks = MXFakeQuantizeConfig(dtype=torch.float4_e2m1fn_x2)
        return QATConfig(activation_config=blocks, weight_config=blocks, step="prepare")
    target: Any
    if scheme == "nvfp4":
        from torchao.prototype.mx_formats import NVFP4DynamicActivationNVFP4WeightConfig

        target = NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)
    elif scheme == "int8_int4":
        groups = quantization.PerGroup(group_size)
        target = quantization.Int8DynamicActivationIntxWeightConfig(
            # PyTorch's stubs do not have this number format.
            weight_dtype=getattr(torch, "int4"),  # noqa: B009
            weight_granularity=groups,
        )
    elif scheme == "int4":
        target = quantization.Int4WeightOnlyConfig(group_size=group_size)
    elif scheme == "fp8_int4":
        target = quantization.Float8DynamicActivationInt4WeightConfig()
    else:
        target = quantization.Float8DynamicActivationFloat8WeightConfig(
            granularity=quantization.PerRow()
        )
    return QATConfig(target, step="prepare")
