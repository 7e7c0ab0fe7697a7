"""Precision axis: the number formats of weights and arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Variant, add

if TYPE_CHECKING:
    import torch


def _fp8(recipe: str, doc: str) -> Variant:
    return Variant(
        doc=doc,
        training_arguments={"bf16": True, "tf32": False},
        hooks={"linears": Hook("float8_linears", {"recipe": recipe})},
        requires=("package:torchao", "capability>=8.9"),
        numerical_effect="training",
        traits=("float8_linears",),
    )


# Every row sets tf32: if it is None, torch_compile=True turns TF32 on.
PRECISION = Axis(
    name="precision",
    doc="Number formats of weights and arithmetic",
    default="fp32",
    variants={
        "fp32": Variant(
            doc="32-bit weights and arithmetic",
            training_arguments={"tf32": False},
        ),
        "tf32": Variant(
            doc="32-bit weights, matrix products on TF32 tensor cores: saves time, no memory",
            training_arguments={"tf32": True},
            requires=("capability>=8.0",),
            numerical_effect="rounding",
        ),
        "fp16": Variant(
            doc="Mixed precision with fp16 autocast and loss scaling: 32-bit weights; saves time "
            "and activation memory",
            training_arguments={"fp16": True, "tf32": False},
            requires=("cuda",),  # accelerate silently trains in fp32 on a CPU
            numerical_effect="rounding",
        ),
        "bf16": Variant(
            doc="Mixed precision with bf16 autocast: 32-bit weights; saves time and activation "
            "memory",
            training_arguments={"bf16": True, "tf32": False},
            requires=("bf16",),
            numerical_effect="rounding",
        ),
        "bf16_tf32": Variant(
            doc="bf16 autocast, with TF32 for matrix products that autocast keeps in 32 bits",
            training_arguments={"bf16": True, "tf32": True},
            requires=("capability>=8.0",),
            numerical_effect="rounding",
        ),
        "bf16_weights": Variant(
            doc="Pure bf16: weights, gradients and optimizer states in 16 bits without a 32-bit "
            "copy; saves the most memory, changes the training",
            training_arguments={"bf16": True, "tf32": False},
            model_kwargs={"dtype": "bfloat16"},
            requires=("bf16",),
            numerical_effect="training",
        ),
        "bf16_weights_tf32": Variant(
            doc="Pure bf16, with TF32 for the few matrix products that stay in 32 bits",
            training_arguments={"bf16": True, "tf32": True},
            model_kwargs={"dtype": "bfloat16"},
            requires=("capability>=8.0",),
            numerical_effect="training",
        ),
        "fp16_weights": Variant(
            doc="Pure fp16: weights, gradients and optimizer states in 16 bits, without autocast "
            "and without loss scaling, so small gradients are lost; changes the training",
            training_arguments={"tf32": False},
            model_kwargs={"dtype": "float16"},
            numerical_effect="training",
        ),
        "fp8_tensorwise": _fp8(
            "tensorwise",
            "bf16 autocast, with linear layers in FP8 by torchao and one scale per tensor: for "
            "wide layers, together with torch.compile",
        ),
        "fp8_rowwise": _fp8(
            "rowwise",
            "bf16 autocast, with linear layers in FP8 by torchao and one scale per row: more "
            "accurate than one scale per tensor, and slower",
        ),
    },
)
add(PRECISION)


@hook("float8_linears")
def float8_linears(
    model: torch.nn.Module, task: Task, arguments: Any, *, recipe: str
) -> torch.nn.Module:
    """``model`` with its linear layers computed in FP8, with a ``recipe`` of torchao. The output
    layer is not converted, and neither are layers whose sides do not suit the tensor cores.
    ``arguments`` are the ``TrainingArguments``. Raises ValueError if no layer is converted."""
    import dataclasses

    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    converted: list[str] = []

    def takes_fp8(module: Any, name: str) -> bool:
        # The test is for the exact class: a quantized layer is a subclass of a linear layer.
        sides = (getattr(module, "in_features", 1), getattr(module, "out_features", 1))
        fits = all(side % 16 == 0 for side in sides)  # as the tensor cores need it
        is_plain = type(module).__name__ in ("Linear", "NonDynamicallyQuantizableLinear")
        if is_plain and fits and module is not head:
            converted.append(name)
            return True
        return False

    config = Float8LinearConfig.from_recipe_name(recipe)
    # The product for a weight's gradient sums over the samples. A pooler may have fewer than 16.
    config = dataclasses.replace(config, pad_inner_dim=True)
    convert_to_float8_training(model, config=config, module_filter_fn=takes_fp8)
    if not converted:
        raise ValueError(
            f"{type(model).__name__} does not support FP8: no linear layer has sides that are "
            "multiples of 16"
        )
    return model
