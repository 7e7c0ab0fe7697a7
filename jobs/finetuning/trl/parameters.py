"""The settings of TRL's configuration classes that a technique may set, and these classes' objects.

TRL is imported only when an object is asked for.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jobs.errors import UnsupportedError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROW_PARAMETERS = _words(
    "assistant_only_loss completion_only_loss dataset_num_proc eos_token shuffle_dataset"
)
"""Parameters of ``SFTConfig`` that only the preparation of rows reads, and not the Trainer."""
_SFT = ROW_PARAMETERS | _words(
    "activation_offloading loss_type packing_strategy pad_to_multiple_of router_aux_loss_coef"
)
"""The parameters of ``SFTConfig`` that a trial may set. Another user's record cannot set others."""
_STRATEGIES = ("bfd", "bfd_split")
PACKED = ("packed_rows", "packed_whole_rows")
"""The hooks of batching with which TRL packs rows, always whole ones. With the second, a sample is
a row, and not a block."""
SAME_DPO = _words(
    "activation_offloading dataset_num_proc pad_to_multiple_of precompute_ref_log_probs"
)
"""Parameters of ``DPOConfig`` that change only the time or the memory of the training."""
_DPO = SAME_DPO | _words(
    """
    beta disable_dropout discopop_tau f_alpha_divergence_coef f_divergence_type label_smoothing
    ld_alpha loss_type loss_weights ref_model_mixup_alpha ref_model_sync_steps router_aux_loss_coef
    sync_ref_model use_weighting
    """
)
_REWARD_DIFFERENCE = _words("sigmoid sigmoid_norm hinge ipo exo_pair robust discopop sft")
"""Losses of the difference of two rewards, which alone take another divergence (trl.DPOTrainer)."""
_SORTING = frozenset({"aot", "aot_unpaired"})
"""Losses that sort the pairs of a batch, so that a weight no longer belongs to its pair."""


def checked_sft(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``parameters`` of ``SFTConfig``, if a trial may set all of them. Raises ValueError
    for one that it may not set, and UnsupportedError for a packing strategy in which rows attend to
    each other."""
    _refuse_others(parameters, _SFT, "SFTConfig")
    strategy = parameters.get("packing_strategy", "bfd")
    if strategy not in _STRATEGIES:
        raise UnsupportedError(
            "packing_strategy",
            f"with TRL's packing strategy {strategy}, rows of a block attend to each other; "
            f"strategies that keep rows apart: {', '.join(_STRATEGIES)}",
        )
    return dict(parameters)


def checked_dpo(trainer: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``parameters`` of ``DPOConfig``, if a trial may set all of them. Raises ValueError
    for another ``trainer`` than "dpo", and for parameters that a trial may not set or that
    contradict each other."""
    if trainer != "dpo":
        raise ValueError(f"{trainer!r:.40} is not a preference trainer")
    _refuse_others(parameters, _DPO, "DPOConfig")
    if problem := contradiction(parameters):
        raise ValueError(problem)
    return dict(parameters)


def _refuse_others(parameters: Mapping[str, Any], allowed: frozenset[str], class_name: str) -> None:
    refused = sorted(parameters.keys() - allowed)
    if refused:
        raise ValueError(f"{class_name}'s parameter {refused[0]} may not be set here")


def contradiction(parameters: Mapping[str, Any]) -> str:
    """Which parameters of ``DPOConfig`` TRL would refuse together, and why; empty if none."""
    # TRL takes one name or a list of names.
    losses = parameters.get("loss_type", "sigmoid")
    if isinstance(losses, str):
        losses = [losses]
    return (
        _contradicting_losses(parameters, losses)
        or _number_out_of_range(parameters, losses)
        or _contradicting_reference(parameters)
    )


def _contradicting_losses(parameters: Mapping[str, Any], losses: list[str]) -> str:
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


def _number_out_of_range(parameters: Mapping[str, Any], losses: list[str]) -> str:
    share = parameters.get("ld_alpha")
    if share is not None and not 0 <= share <= 1:
        return "ld_alpha must be from 0 to 1"
    # The robust loss is divided by 1 - 2 * label_smoothing.
    if "robust" in losses and not 0 <= parameters.get("label_smoothing", 0.0) < 0.5:
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


def refusal(what: str, error: Exception) -> UnsupportedError:
    """The outcome of a trial in which TRL refuses something, with TRL's reason in one line."""
    return UnsupportedError("trl", f"TRL refuses {what}: {' '.join(str(error).split())}")


def sft_config(fields: Mapping[str, Any], *, batching: str, parameters: Mapping[str, Any]) -> Any:
    """The ``SFTConfig`` for rows that are prepared already. ``fields`` are those of
    ``TrainingArguments``, whose defaults replace those of SFTConfig: bf16, checkpointing, another
    learning rate. ``batching`` names the trial's batching hook."""
    from trl import SFTConfig

    given = checked_sft(parameters)
    of_trainer = {name: value for name, value in given.items() if name not in ROW_PARAMETERS}
    return SFTConfig(
        **{**plain_defaults(SFTConfig), **fields, **of_trainer},
        packing=batching in PACKED,
        padding_free=batching == "flattened_rows",
        # The rows have already been cut, and TRL refuses a limit that it would not enforce.
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def dpo_config(
    fields: Mapping[str, Any], *, batching: str, trainer: str, parameters: Mapping[str, Any]
) -> Any:
    """The ``DPOConfig`` for pairs that are prepared and cut already; as ``sft_config``."""
    from trl import DPOConfig

    given = checked_dpo(trainer, parameters)
    return DPOConfig(**{**plain_defaults(DPOConfig), **fields, **given}, max_length=None)


def plain_defaults(config_class: Any) -> dict[str, Any]:
    """The defaults of ``TrainingArguments`` for fields that have another default in a subclass."""
    from transformers import TrainingArguments

    plain = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    own = {field.name: field.default for field in dataclasses.fields(config_class)}
    return {name: value for name, value in plain.items() if name in own and own[name] != value}
