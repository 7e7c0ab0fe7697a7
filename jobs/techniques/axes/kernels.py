"""Kernels axis: fused kernels for the layers of a model. The loss has an axis of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook, Task
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, Family, Variant, add

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class LigerKernels:
    """Which layers get Liger's kernels. One that the architecture does not have changes nothing."""

    rope: bool = True
    rms_norm: bool = True
    layer_norm: bool = True
    mlp: bool = True


def _liger(parameters: Mapping[str, Any]) -> Variant:
    arguments = {"chosen": dict(parameters)} if parameters else {}
    return Variant(
        doc="Liger's fused kernels for norms, rotary positions and gated layers, without its loss: "
        "saves time and activations",
        hooks={"layers": Hook("liger_kernels", arguments)},
        requires=("package:liger_kernel", "cuda"),
        numerical_effect="rounding",
        traits=("liger_architecture",),
    )


KERNELS = Axis(
    name="kernels",
    doc="Which kernels compute norms, rotary positions and gated layers",
    default="none",
    variants={
        "none": Variant(doc="The layers of transformers, unchanged"),
        "liger": _liger({}),
        "hub": Variant(
            doc="The kernels that transformers takes from the Hub for a model's layers, as its "
            "argument use_kernels does; layers without a kernel stay as they are",
            hooks={"layers": Hook("hub_layers")},
            requires=("package:kernels", "hub_layers", "cuda"),
            numerical_effect="rounding",
        ),
    },
    families={
        "liger": Family(
            doc="Some of Liger's kernels: rope, rms_norm, layer_norm and mlp are true or false",
            config_class="jobs.techniques.axes.kernels:LigerKernels",
            build=_liger,
        ),
    },
)
add(KERNELS)


@hook("hub_layers")
def hub_layers(model: torch.nn.Module, task: Task, arguments: Any) -> torch.nn.Module:
    """``model`` with the kernels for training that the Hub has for its layers on this device.
    transformers keeps the code of other layers without a message. ``model.hub_kernel_layers``
    counts those with a kernel. Raises NotImplementedError if there is none."""

    def code_of(module: Any) -> Any:
        return getattr(module.forward, "__func__", module.forward)

    modules = list(model.modules())
    before = [code_of(module) for module in modules]
    # transformers chooses kernels for training if the model is in this mode.
    kernelized: Any = model.train()
    kernelized.set_use_kernels(True)
    replaced = 0
    for module, code in zip(modules, before, strict=True):
        replaced += code_of(module) is not code
    if not replaced:
        raise NotImplementedError(
            f"{type(model).__name__} does not support kernels of the Hub: it has none for the "
            "layers of this model on this device"
        )
    kernelized.hub_kernel_layers = replaced
    return model


@hook("liger_kernels")
def liger_kernels(
    model: torch.nn.Module, task: Task, arguments: Any, *, chosen: Mapping[str, bool] | None = None
) -> torch.nn.Module:
    """``model`` with the kernels that Liger has for its architecture, except those of the loss.
    ``chosen`` holds fields of ``LigerKernels``; a field that it does not hold is true. Raises
    NotImplementedError for an architecture that Liger does not support."""
    import inspect

    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    config: Any = model.config
    apply = MODEL_TYPE_TO_APPLY_LIGER_FN.get(config.model_type)
    if apply is None:
        raise NotImplementedError(
            f"{type(model).__name__} does not support Liger's kernels: Liger has none for the "
            f"architecture {config.model_type}"
        )
    # Liger names the switch of the gated layers after their activation.
    fields = {"swiglu": "mlp", "geglu": "mlp", "relu_squared": "mlp"}
    # Each kernel is a switch of this function, with Liger's own default.
    switches = {}
    for name, parameter in inspect.signature(apply).parameters.items():
        if isinstance(parameter.default, bool):
            is_chosen = (chosen or {}).get(fields.get(name, name), True)
            switches[name] = parameter.default and is_chosen and "cross_entropy" not in name
        elif parameter.kind is parameter.VAR_KEYWORD:
            # The function of a vision-language model hands these on to those of its parts.
            off = {name for name, is_chosen in (chosen or {}).items() if not is_chosen}
            names = [*off, *(name for name, field in fields.items() if field in off)]
            switches |= dict.fromkeys(names, False)
    apply(model=model, **switches)
    return model
