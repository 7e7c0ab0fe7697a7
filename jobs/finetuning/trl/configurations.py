"""A trial's settings as TRL's configuration, with the defaults of ``TrainingArguments``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

from jobs.finetuning.trl.allowed_parameters import ROW_PARAMETERS, checked_dpo, checked_sft


def sft_config(
    fields: Mapping[str, Any], *, batching: str, parameters: Mapping[str, Any]
) -> TrainingArguments:
    """The ``SFTConfig`` for rows that are prepared already.

    ``fields`` are those of ``TrainingArguments``, and ``batching`` names the trial's batching hook.
    By default, SFTConfig trains in bf16, with checkpointing and another learning rate. These fields
    are set to the defaults of ``TrainingArguments``, unless the trial sets them.
    """
    from trl import SFTConfig

    given = checked_sft(parameters)
    of_trainer = {name: value for name, value in given.items() if name not in ROW_PARAMETERS}
    config: TrainingArguments = SFTConfig(
        **{**plain_defaults(SFTConfig), **fields, **of_trainer},
        packing=batching == "packed_rows",
        padding_free=batching == "flattened_rows",
        # The rows have already been cut, and TRL refuses a limit that it would not enforce.
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
    return config


def dpo_config(
    fields: Mapping[str, Any], *, batching: str, trainer: str, parameters: Mapping[str, Any]
) -> TrainingArguments:
    """The ``DPOConfig`` for pairs that are prepared and cut already; defaults as in ``sft_config``.

    Raises ValueError for a parameter that a trial may not set.
    """
    from trl import DPOConfig

    given = checked_dpo(trainer, parameters)
    config: TrainingArguments = DPOConfig(
        **{**plain_defaults(DPOConfig), **fields, **given}, max_length=None
    )
    return config


def plain_defaults(config_class: Any) -> dict[str, Any]:
    """The defaults of ``TrainingArguments`` for fields that have another default in a subclass."""
    plain = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    changed = {}
    for field in dataclasses.fields(config_class):
        if field.name in plain and field.default != plain[field.name]:
            changed[field.name] = plain[field.name]
    return changed
