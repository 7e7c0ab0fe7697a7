"""Preference training: TRL's trainers of answer pairs as rows of the loop axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.spec import Hook
from jobs.techniques.base import OTHER_WORKLOAD, Family, Variant
from jobs.techniques.parameters import written


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferenceTrainer:
    """A Trainer of TRL, and which fields of its configuration class a technique may set."""

    doc: str
    trainer: str
    """Name of its class in the package ``trl``."""
    config: str
    """Name of its configuration class there."""
    config_module: str
    exact: frozenset[str]
    """Parameters that change only the time or the memory of the training."""
    training: frozenset[str]
    """Parameters that change what the model learns."""
    decided: Mapping[str, str]
    """Field that the user may not set -> the reason."""
    types: Mapping[str, str]
    """Parameter -> its type, for one that the class itself declares too widely."""

    @property
    def allowed(self) -> frozenset[str]:
        """The parameters that a technique may set."""
        return self.exact | self.training


_ARGUMENT = "it is a training argument, or the choice of an axis"
_DECIDED = {
    **dict.fromkeys(
        (
            "bf16",
            "gradient_checkpointing",
            "learning_rate",
            "logging_steps",
            "lr_scheduler_kwargs",
            "torch_empty_cache_steps",
            "use_liger_kernel",
        ),
        _ARGUMENT,
    ),
    "max_length": "data.file.max_length and the axis sequence_length decide it",
    "model_init_kwargs": "the key model and the axes decide it",
    "pad_token": "the tokenizer decides it",
    "padding_free": "TRL has taken it out of this Trainer, and pads in any case",
    "precompute_ref_batch_size": "the micro-batch decides it: a larger batch could need more "
    "memory before the training than the training itself",
    "trust_remote_code": "the key model decides it",
    "truncation_mode": "TRL is about to remove it",
}
"""Field of a configuration class that the user may not set -> the reason."""
_LOSSES = (
    "Literal['sigmoid', 'hinge', 'ipo', 'exo_pair', 'nca_pair', 'robust', 'bco_pair', 'sppo_hard', "
    "'aot', 'aot_unpaired', 'apo_zero', 'apo_down', 'discopop', 'sft', 'sigmoid_norm']"
)
_DIVERGENCES = "Literal['reverse_kl', 'forward_kl', 'js_divergence', 'alpha_divergence']"
_REWARD_DIFFERENCE = frozenset(
    {"sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
)
"""Losses of the difference of two rewards, which alone take another divergence (trl.DPOTrainer)."""
_SORTING = frozenset({"aot", "aot_unpaired"})
"""Losses that sort the pairs of a batch, so that a weight no longer belongs to its pair."""

PREFERENCE_TRAINERS: Mapping[str, PreferenceTrainer] = {
    "dpo": PreferenceTrainer(
        doc="TRL's DPOTrainer, for pairs of a chosen and a rejected answer: a sample is a pair; "
        "all other settings are those of the trial. Without an adapter, a copy of the model stays "
        "in memory as the reference",
        trainer="DPOTrainer",
        config="DPOConfig",
        config_module="trl.trainer.dpo_config",
        exact=frozenset(
            {
                "activation_offloading",
                "dataset_num_proc",
                "pad_to_multiple_of",
                "precompute_ref_log_probs",
            }
        ),
        training=frozenset(
            {
                "beta",
                "disable_dropout",
                "discopop_tau",
                "f_alpha_divergence_coef",
                "f_divergence_type",
                "label_smoothing",
                "ld_alpha",
                "loss_type",
                "loss_weights",
                "ref_model_mixup_alpha",
                "ref_model_sync_steps",
                "router_aux_loss_coef",
                "sync_ref_model",
                "use_weighting",
            }
        ),
        decided=_DECIDED,
        types={
            "f_divergence_type": _DIVERGENCES,
            "loss_type": f"{_LOSSES} | list[{_LOSSES}]",
        },
    ),
}
"""Name of a loop, without its ``trl_`` -> the Trainer."""

_PLAIN_AGAIN = (
    "In each step TRL switches checkpointing off for the reference, and then on again without the"
)
INCOMPATIBLE: Mapping[str, tuple[tuple[str, ...], str]] = {
    "preference_batches_are_padded": (
        ("preferences", "trainer_batches"),
        "TRL's preference trainers pad random pairs: they pack nothing, join no rows, and have no "
        "input_ids by whose length pairs could be grouped.",
    ),
    "preferences_without_deepspeed": (
        ("preferences", "deepspeed"),
        "The reference model of a preference training would need a DeepSpeed engine of its own, "
        "which this loop does not make.",
    ),
    # trl.models.utils.disable_gradient_checkpointing switches it on again with plain settings.
    "preferences_checkpoint_whole_layers": (
        ("reference_pass", "selective"),
        f"{_PLAIN_AGAIN} choice of operators: whole layers would be recomputed.",
    ),
    "preferences_checkpoint_every_layer": (
        ("reference_pass", "every_n_layers"),
        f"{_PLAIN_AGAIN} choice of layers: every layer would be recomputed.",
    ),
    "preferences_checkpoint_on_the_gpu": (
        ("reference_pass", "offload"),
        f"{_PLAIN_AGAIN} move to the host: the layers' inputs would stay on the GPU.",
    ),
    # trl.DPOTrainer raises this.
    "synced_reference_is_a_model": (
        ("synced_reference", "peft"),
        "With an adapter the reference is the model without it, and no model that "
        "sync_ref_model could change.",
    ),
}
"""Name of a rule -> the traits that do not go together, and why."""


def preference_row(name: str, parameters: Mapping[str, Any]) -> Variant:
    """The row of a Trainer with parameters of its configuration class."""
    trainer = PREFERENCE_TRAINERS[name]
    arguments = {"trainer": name, "parameters": dict(parameters)}
    traits = ["trl", "preferences", OTHER_WORKLOAD]
    if parameters.get("sync_ref_model"):
        traits.append("synced_reference")
    if not parameters.get("precompute_ref_log_probs"):
        traits.append("reference_pass")
    requires = ["task:causal-lm", "package:trl", "trl>=1.16"]
    if parameters.get("activation_offloading"):
        requires.append("cuda")
    learned = {key: value for key, value in parameters.items() if key not in trainer.exact}
    return Variant(
        doc=trainer.doc,
        hooks={
            "preferences": Hook("trl_preference_rows", arguments),
            "arguments": Hook("trl_preference_arguments", arguments),
            "loop": Hook("trl_preference_loop", {"trainer": name}),
        },
        requires=tuple(requires),
        numerical_effect="training",
        recipe=written(f"trl_{name}", learned),
        traits=tuple(traits),
    )


def preference_family(name: str) -> Family:
    """The rows of a Trainer with any parameters."""
    trainer = PREFERENCE_TRAINERS[name]

    def build(parameters: Mapping[str, Any]) -> Variant:
        """The row with these parameters."""
        return preference_row(name, parameters)

    return Family(
        doc=f"TRL's {trainer.trainer} with settings of {trainer.config}, such as beta",
        config_class=f"{trainer.config_module}:{trainer.config}",
        build=build,
        decided=trainer.decided,
        extra=trainer.types,
        problem=contradiction,
    )


def contradiction(parameters: Mapping[str, Any]) -> str:
    """Which parameters TRL would refuse together, and why; empty if none."""
    return (
        _contradicting_losses(parameters)
        or _number_out_of_range(parameters)
        or _contradicting_reference(parameters)
    )


def loss_names(parameters: Mapping[str, Any]) -> list[str]:
    """The losses that are added up. TRL takes one name or a list of names."""
    losses = parameters.get("loss_type", "sigmoid")
    if isinstance(losses, str):
        return [losses]
    return list(losses)


def _contradicting_losses(parameters: Mapping[str, Any]) -> str:
    losses = loss_names(parameters)
    if not losses:
        return "loss_type names no loss"
    weights = parameters.get("loss_weights")
    if weights is not None and len(weights) != len(losses):
        return f"loss_weights has {len(weights)} weights, and loss_type has {len(losses)} losses"
    if "exo_pair" in losses and not parameters.get("label_smoothing"):
        return "the loss exo_pair needs a label_smoothing above 0; its paper recommends 0.001"
    divergence = parameters.get("f_divergence_type", "reverse_kl")
    others = [loss for loss in losses if loss not in _REWARD_DIFFERENCE]
    if divergence != "reverse_kl" and others:
        return f"the loss {others[0]} has no form for f_divergence_type {divergence}"
    sorting = [loss for loss in losses if loss in _SORTING]
    if parameters.get("use_weighting") and sorting:
        return f"use_weighting gives each pair a weight, and the loss {sorting[0]} sorts the pairs"
    return ""


def _number_out_of_range(parameters: Mapping[str, Any]) -> str:
    share = parameters.get("ld_alpha")
    if share is not None and not 0 <= share <= 1:
        return "ld_alpha must be from 0 to 1"
    smoothing = parameters.get("label_smoothing", 0.0)
    # The robust loss is divided by 1 - 2 * label_smoothing.
    if "robust" in loss_names(parameters) and not 0 <= smoothing < 0.5:
        return "label_smoothing of the loss robust must be at least 0 and below 0.5"
    if parameters.get("ref_model_sync_steps", 1) < 1:
        return "ref_model_sync_steps must be at least 1"
    return ""


def _contradicting_reference(parameters: Mapping[str, Any]) -> str:
    syncs = parameters.get("sync_ref_model")
    if syncs and parameters.get("precompute_ref_log_probs"):
        return (
            "sync_ref_model changes the reference during the training, and "
            "precompute_ref_log_probs computes its log-probabilities only once, before"
        )
    for name in ("ref_model_mixup_alpha", "ref_model_sync_steps"):
        if name in parameters and not syncs:
            return f"{name} has no effect without sync_ref_model: true"
    return ""
