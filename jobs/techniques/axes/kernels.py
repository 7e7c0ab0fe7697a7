"""Kernels axis: fused kernels for the layers of a model. The loss is a separate axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch

    from jobs.spec import Task

KERNELS = Axis(
    name="kernels",
    doc="Which kernels compute norms, rotary positions and gated layers",
    default="none",
    variants={
        "none": Variant(doc="The layers of transformers, unchanged"),
        "liger": Variant(
            doc="Liger's fused kernels for norms, rotary positions and gated layers, without its "
            "loss: saves time and activations",
            hooks={"layers": Hook("liger_kernels")},
            requires=("package:liger_kernel", "cuda"),
            numerical_effect="rounding",
            traits=("liger_architecture",),
        ),
    },
)


@hook("liger_kernels")
def liger_kernels(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with all kernels that Liger has for its architecture, except those of the loss.

    Raises NotImplementedError for an architecture that Liger does not support.
    """
    import inspect

    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    config: Any = model.config
    apply = MODEL_TYPE_TO_APPLY_LIGER_FN.get(config.model_type)
    if apply is None:
        raise NotImplementedError(
            f"{type(model).__name__} does not support Liger's kernels: Liger has none for the "
            f"architecture {config.model_type}"
        )
    # Each boolean argument of Liger's function switches one kernel on. All keep Liger's default,
    # except the kernels of the loss, which are off.
    switches = {}
    for name, parameter in inspect.signature(apply).parameters.items():
        if isinstance(parameter.default, bool):
            switches[name] = parameter.default and "cross_entropy" not in name
    apply(model=model, **switches)
    return model
