"""Optimizer axis: every optimizer the Trainer knows by name, and the ones handed to it as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.base import Axis, NumericalEffect, Variant
from jobs.techniques.hooks import hook

if TYPE_CHECKING:
    import torch


def _named(
    name: str, doc: str, *, numerical_effect: NumericalEffect = "training", **row: Any
) -> Variant:
    arguments = {"optim": name}
    return Variant(doc=doc, training_arguments=arguments, numerical_effect=numerical_effect, **row)


def _bitsandbytes(name: str, doc: str, *requires: str) -> Variant:
    return _named(name, doc, requires=("package:bitsandbytes", *requires), traits=("bitsandbytes",))


def _low_rank(name: str, doc: str, package: str) -> Variant:
    arguments = {"optim": name, "optim_target_modules": "all-linear"}
    tags = ("low_rank", "layerwise") if name.endswith("layerwise") else ("low_rank",)
    return Variant(
        doc=doc,
        training_arguments=arguments,
        requires=(f"package:{package}",),
        numerical_effect="training",
        traits=tags,
    )


OPTIMIZER = Axis(
    name="optimizer",
    doc="what updates the weights, and the state it keeps per parameter",
    default="adamw_torch_fused",
    variants={
        "adamw_torch_fused": _named(
            "adamw_torch_fused",
            "AdamW, one fused kernel per step",
            numerical_effect="exact",
            traits=("torch_adamw",),
        ),
        "adamw_torch": _named(
            "adamw_torch",
            "AdamW, PyTorch's default implementation",
            numerical_effect="exact",
            traits=("torch_adamw",),
        ),
        "adamw_foreach": Variant(
            doc="AdamW, multi-tensor (foreach) kernels: the guide's multi_tensor",
            hooks={"optimizer": Hook("torch_adamw", {"foreach": True})},
            traits=("custom_optimizer",),
        ),
        "adamw_forloop": Variant(
            doc="AdamW, one parameter at a time",
            hooks={"optimizer": Hook("torch_adamw", {"foreach": False})},
            traits=("custom_optimizer",),
        ),
        "adamw_torch_8bit": _named(
            "adamw_torch_8bit",
            "torchao AdamW, 8-bit states",
            requires=("package:torchao",),
            traits=("torchao",),
        ),
        "adamw_torch_4bit": _named(
            "adamw_torch_4bit",
            "torchao AdamW, 4-bit states",
            requires=("package:torchao",),
            traits=("torchao",),
        ),
        "adafactor": _named("adafactor", "Adafactor: factored second moment, no first"),
        "sgd": _named("sgd", "plain SGD without momentum: no state"),
        "sgd_momentum": Variant(
            doc="SGD with momentum: one state per parameter",
            training_arguments={"optim": "sgd", "optim_args": "momentum=0.9"},
            numerical_effect="training",
        ),
        "adagrad": _named("adagrad", "Adagrad: one state per parameter"),
        "rmsprop": _named("rmsprop", "RMSprop: one state per parameter"),
        "adamw_bnb_8bit": _bitsandbytes("adamw_bnb_8bit", "bitsandbytes AdamW, 8-bit states"),
        "paged_adamw_8bit": _bitsandbytes(
            "paged_adamw_8bit", "bitsandbytes AdamW, 8-bit states in paged memory"
        ),
        "paged_adamw_32bit": _bitsandbytes(
            "paged_adamw_32bit", "bitsandbytes AdamW, 32-bit states in paged memory"
        ),
        "lion_8bit": _bitsandbytes("lion_8bit", "bitsandbytes Lion, 8-bit momentum"),
        "lion_32bit": _bitsandbytes("lion_32bit", "bitsandbytes Lion, 32-bit momentum"),
        "paged_lion_8bit": _bitsandbytes(
            "paged_lion_8bit", "bitsandbytes Lion, 8-bit momentum in paged memory"
        ),
        "paged_lion_32bit": _bitsandbytes(
            "paged_lion_32bit", "bitsandbytes Lion, 32-bit momentum in paged memory"
        ),
        "ademamix": _bitsandbytes("ademamix", "bitsandbytes AdEMAMix, 32-bit states"),
        "ademamix_8bit": _bitsandbytes("ademamix_8bit", "bitsandbytes AdEMAMix, 8-bit states"),
        "paged_ademamix_32bit": _bitsandbytes(
            "paged_ademamix_32bit", "bitsandbytes AdEMAMix in paged memory", "cuda"
        ),
        "paged_ademamix_8bit": _bitsandbytes(
            "paged_ademamix_8bit", "bitsandbytes AdEMAMix, 8-bit and paged", "cuda"
        ),
        "rmsprop_bnb": _bitsandbytes("rmsprop_bnb", "bitsandbytes RMSprop"),
        "rmsprop_bnb_8bit": _bitsandbytes("rmsprop_bnb_8bit", "bitsandbytes RMSprop, 8-bit state"),
        "rmsprop_bnb_32bit": _bitsandbytes(
            "rmsprop_bnb_32bit", "bitsandbytes RMSprop, 32-bit state"
        ),
        "adam8bit_decay_groups": Variant(
            doc="bitsandbytes Adam8bit built by hand with weight-decay groups: the guide's third-party way",
            hooks={"optimizer": Hook("bitsandbytes_adam8bit")},
            requires=("package:bitsandbytes",),
            numerical_effect="training",
            traits=("bitsandbytes", "custom_optimizer"),
        ),
        "galore_adamw": _low_rank(
            "galore_adamw", "GaLore AdamW: low-rank gradient projection", "galore_torch"
        ),
        "galore_adamw_8bit": _low_rank(
            "galore_adamw_8bit", "GaLore AdamW, 8-bit states", "galore_torch"
        ),
        "galore_adafactor": _low_rank("galore_adafactor", "GaLore Adafactor", "galore_torch"),
        "galore_adamw_layerwise": _low_rank(
            "galore_adamw_layerwise", "GaLore AdamW, layer by layer", "galore_torch"
        ),
        "galore_adamw_8bit_layerwise": _low_rank(
            "galore_adamw_8bit_layerwise",
            "GaLore AdamW, 8-bit states, layer by layer",
            "galore_torch",
        ),
        "galore_adafactor_layerwise": _low_rank(
            "galore_adafactor_layerwise", "GaLore Adafactor, layer by layer", "galore_torch"
        ),
        "apollo_adamw": _low_rank(
            "apollo_adamw", "APOLLO AdamW: random low-rank projection", "apollo_torch"
        ),
        "apollo_adamw_layerwise": _low_rank(
            "apollo_adamw_layerwise", "APOLLO AdamW, layer by layer", "apollo_torch"
        ),
        "lomo": _named(
            "lomo",
            "LOMO: the update fused into the backward pass",
            requires=("package:lomo_optim",),
            traits=("lomo",),
        ),
        "adalomo": _named(
            "adalomo",
            "AdaLOMO: LOMO with second moments",
            requires=("package:lomo_optim",),
            traits=("lomo",),
        ),
        "grokadamw": _named("grokadamw", "GrokAdamW", requires=("package:grokadamw",)),
        "stable_adamw": _named("stable_adamw", "StableAdamW", requires=("package:optimi",)),
        "schedule_free_adamw": _named(
            "schedule_free_adamw",
            "schedule-free AdamW",
            requires=("package:schedulefree",),
            traits=("schedule_free",),
        ),
        "schedule_free_radam": _named(
            "schedule_free_radam",
            "schedule-free RAdam",
            requires=("package:schedulefree",),
            traits=("schedule_free",),
        ),
        "schedule_free_sgd": _named(
            "schedule_free_sgd",
            "schedule-free SGD",
            requires=("package:schedulefree",),
            traits=("schedule_free",),
        ),
    },
)


def decay_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: with weight decay, and without it (biases and normalisation layers)."""
    from torch import nn
    from transformers.trainer_pt_utils import get_parameter_names

    decayed = {name for name in get_parameter_names(model, [nn.LayerNorm]) if "bias" not in name}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for name, p in named if name in decayed], "weight_decay": weight_decay},
        {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0},
    ]


@hook("torch_adamw")
def torch_adamw(model: torch.nn.Module, arguments: Any, *, foreach: bool) -> torch.optim.Optimizer:
    """``torch.optim.AdamW`` with the implementation chosen; arguments are the ``TrainingArguments``."""
    import torch

    return torch.optim.AdamW(
        decay_groups(model, arguments.weight_decay),
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
        foreach=foreach,
        fused=False,
    )


@hook("bitsandbytes_adam8bit")
def bitsandbytes_adam8bit(model: torch.nn.Module, arguments: Any) -> torch.optim.Optimizer:
    """``bitsandbytes.optim.Adam8bit`` as the guide builds it; arguments are the ``TrainingArguments``."""
    import bitsandbytes

    optimizer: torch.optim.Optimizer = bitsandbytes.optim.Adam8bit(
        decay_groups(model, arguments.weight_decay),
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
    )
    return optimizer
