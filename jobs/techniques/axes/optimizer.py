"""Optimizer axis: every optimizer that the Trainer has by name, and some that hooks create."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jobs.spec import Hook
from jobs.techniques.hooks import hook
from jobs.techniques.variant import Axis, NumericalEffect, Variant, add

if TYPE_CHECKING:
    import torch


def _rows(
    by: str = "",
    *,
    requires: tuple[str, ...] = (),
    traits: tuple[str, ...] = (),
    effect: NumericalEffect = "training",
    arguments: Mapping[str, Any] | None = None,
    **docs: str,
) -> dict[str, Variant]:
    """Rows of one kind: the name that the Trainer has for an optimizer -> what it is. ``by`` begins
    each description."""
    rows = {}
    for name, doc in docs.items():
        rows[name] = Variant(
            doc=by + doc,
            training_arguments={"optim": name, **(arguments or {})},
            requires=requires,
            numerical_effect=effect,
            traits=traits,
        )
    return rows


PLAIN_TENSORS = "plain_tensors"
"""Trait of optimizers whose operators take no DTensor, as FSDP2 makes of every parameter."""
_LOW_RANK = {"optim_target_modules": "all-linear"}
"""Gradients of all linear layers are projected to a low rank."""

# Shares of memory in these rows are relative to AdamW: two 32-bit states, 8 bytes per parameter.
OPTIMIZER = Axis(
    name="optimizer",
    doc="How the weights are updated; the optimizer's states are often the largest part of memory",
    default="adamw_torch_fused",
    variants={
        **_rows(
            effect="exact",
            traits=("torch_adamw",),
            adamw_torch_fused="AdamW in one fused kernel: two 32-bit states per parameter",
            adamw_torch="AdamW in PyTorch's default implementation: multi-tensor (foreach) kernels "
            "on a GPU",
        ),
        "adamw_foreach": Variant(
            doc="torch.optim.AdamW with multi-tensor (foreach) kernels: costs temporary memory",
            hooks={"optimizer": Hook("torch_adamw", {"foreach": True})},
        ),
        "adamw_forloop": Variant(
            doc="torch.optim.AdamW that updates one tensor at a time: slow, little extra memory",
            hooks={"optimizer": Hook("torch_adamw", {"foreach": False})},
        ),
        **_rows(
            "torchao's ",
            requires=("package:torchao",),
            adamw_torch_8bit="AdamW with 8-bit states: a quarter of AdamW's state memory",
        ),
        **_rows(
            "torchao's ",
            requires=("package:torchao",),
            traits=(PLAIN_TENSORS,),
            adamw_torch_4bit="AdamW with 4-bit states: an eighth of AdamW's state memory",
        ),
        **_rows(
            traits=(PLAIN_TENSORS,),
            adafactor="Adafactor: factored second moments and no first moments, so hardly any "
            "state memory",
        ),
        **_rows(
            sgd="SGD without momentum: no states",
        ),
        "sgd_momentum": Variant(
            doc="SGD with momentum: one 32-bit state per parameter",
            training_arguments={"optim": "sgd", "optim_args": "momentum=0.9"},
            numerical_effect="training",
        ),
        **_rows(
            adagrad="Adagrad: one 32-bit state per parameter",
            rmsprop="RMSprop: one 32-bit state per parameter",
        ),
        # bitsandbytes: quantised states, and "paged" states that CUDA's unified memory can move.
        **_rows(
            "bitsandbytes' ",
            requires=("package:bitsandbytes",),
            traits=(PLAIN_TENSORS,),
            adamw_bnb_8bit="AdamW with 8-bit states: a quarter of AdamW's state memory",
            paged_adamw_8bit="AdamW with 8-bit states in memory that CUDA can move to the host",
            paged_adamw_32bit="AdamW with 32-bit states in memory that CUDA can move to the host",
            lion_8bit="Lion with 8-bit momentum: one byte of state per parameter",
            lion_32bit="Lion with 32-bit momentum: half of AdamW's state memory",
            paged_lion_8bit="Lion with 8-bit momentum in memory that CUDA can move to the host",
            paged_lion_32bit="Lion with 32-bit momentum in memory that CUDA can move to the host",
            ademamix="AdEMAMix with 32-bit states: three per parameter",
            ademamix_8bit="AdEMAMix with 8-bit states",
        ),
        **_rows(
            "bitsandbytes' ",
            requires=("package:bitsandbytes", "cuda"),
            traits=(PLAIN_TENSORS,),
            paged_ademamix_32bit="AdEMAMix with 32-bit states in memory that CUDA can move to the "
            "host",
            paged_ademamix_8bit="AdEMAMix with 8-bit states in memory that CUDA can move to the "
            "host",
        ),
        **_rows(
            "bitsandbytes' ",
            requires=("package:bitsandbytes",),
            traits=(PLAIN_TENSORS,),
            rmsprop_bnb="RMSprop",
            rmsprop_bnb_8bit="RMSprop with an 8-bit state",
            rmsprop_bnb_32bit="RMSprop with a 32-bit state",
        ),
        "adam8bit_decay_groups": Variant(
            doc="bitsandbytes' Adam8bit built by hand with weight-decay groups, as in the Hugging "
            "Face guide",
            hooks={"optimizer": Hook("bitsandbytes_adam8bit")},
            requires=("package:bitsandbytes",),
            numerical_effect="training",
            traits=(PLAIN_TENSORS,),
        ),
        # Low-rank gradients: GaLore (arXiv 2403.03507) and APOLLO (arXiv 2412.05270).
        **_rows(
            requires=("package:galore_torch",),
            traits=("low_rank",),
            arguments=_LOW_RANK,
            galore_adamw="GaLore AdamW: projects gradients to a low rank; saves state memory, "
            "costs time",
            galore_adamw_8bit="GaLore AdamW with 8-bit states",
            galore_adafactor="GaLore Adafactor: low-rank gradients, factored second moment",
        ),
        # Layer-wise optimizers update each layer during the backward pass.
        **_rows(
            requires=("package:galore_torch",),
            traits=("low_rank", "layerwise"),
            arguments=_LOW_RANK,
            galore_adamw_layerwise="GaLore AdamW that updates each layer during the backward pass: "
            "saves gradients too",
            galore_adamw_8bit_layerwise="GaLore AdamW with 8-bit states that updates each layer "
            "during the backward pass",
            galore_adafactor_layerwise="GaLore Adafactor that updates each layer during the "
            "backward pass",
        ),
        **_rows(
            requires=("package:apollo_torch",),
            traits=("low_rank",),
            arguments=_LOW_RANK,
            apollo_adamw="APOLLO AdamW: projects gradients to a random low rank; saves state "
            "memory",
        ),
        **_rows(
            requires=("package:apollo_torch",),
            traits=("low_rank", "layerwise"),
            arguments=_LOW_RANK,
            apollo_adamw_layerwise="APOLLO AdamW that updates each layer during the backward pass: "
            "saves gradients too",
        ),
        # Updates fused into the backward pass (arXiv 2306.09782 and 2310.10195).
        **_rows(
            requires=("package:lomo_optim",),
            traits=("lomo",),
            lomo="LOMO: updates during the backward pass; saves gradients and states",
            adalomo="AdaLOMO: LOMO with factored second moments",
        ),
        **_rows(
            requires=("package:grokadamw",),
            grokadamw="GrokAdamW: AdamW that amplifies slow gradients",
        ),
        **_rows(
            requires=("package:optimi",), stable_adamw="StableAdamW: AdamW with update clipping"
        ),
        # Averaging instead of a schedule (arXiv 2405.15682).
        **_rows(
            requires=("package:schedulefree",),
            traits=("schedule_free",),
            schedule_free_adamw="Schedule-free AdamW: needs no learning-rate schedule",
            schedule_free_radam="Schedule-free RAdam: needs neither learning-rate schedule nor "
            "warm-up",
            schedule_free_sgd="Schedule-free SGD: needs no learning-rate schedule",
        ),
    },
)
add(OPTIMIZER)


def decay_groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two parameter groups: with weight decay, and without it (biases and layer norms)."""
    from torch import nn
    from transformers.trainer_pt_utils import get_parameter_names

    names = {name for name in get_parameter_names(model, [nn.LayerNorm]) if "bias" not in name}
    decayed: dict[str, Any] = {"params": [], "weight_decay": weight_decay}
    others: dict[str, Any] = {"params": [], "weight_decay": 0.0}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if name in names else others)["params"].append(parameter)
    return [decayed, others]


@hook("torch_adamw")
def torch_adamw(model: torch.nn.Module, arguments: Any, *, foreach: bool) -> torch.optim.Optimizer:
    """``torch.optim.AdamW``, multi-tensor or not. ``arguments`` are the ``TrainingArguments``."""
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
    """``bitsandbytes.optim.Adam8bit`` as the Hugging Face guide builds it."""
    import bitsandbytes

    return bitsandbytes.optim.Adam8bit(
        decay_groups(model, arguments.weight_decay),
        lr=arguments.learning_rate,
        betas=(arguments.adam_beta1, arguments.adam_beta2),
        eps=arguments.adam_epsilon,
    )
