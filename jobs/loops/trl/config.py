"""A trial's settings as TRL's configuration, with the defaults of ``TrainingArguments``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from transformers import TrainingArguments

from jobs.loops.trl.parameters import ROW_PARAMETERS, checked, checked_preferences
from jobs.techniques.axes.fine_tuning.preferences import PREFERENCE_TRAINERS


def sft_config(
    fields: Mapping[str, Any], *, batching: str, parameters: Mapping[str, Any]
) -> TrainingArguments:
    """The ``SFTConfig`` for rows that are prepared already.

    ``fields`` are those of ``TrainingArguments``, and ``batching`` names the trial's batching hook.
    By default, SFTConfig trains in bf16, with checkpointing and another learning rate. These fields
    are set to the defaults of ``TrainingArguments``, unless the trial sets them.
    """
    from trl import SFTConfig

    given = checked(parameters)
    of_trainer = {name: value for name, value in given.items() if name not in ROW_PARAMETERS}
    own: dict[str, Any] = {
        "packing": batching == "packed_rows",
        "padding_free": batching == "flattened_rows",
        # The rows have already been cut, and TRL refuses a limit that it would not enforce.
        "max_length": None,
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }
    config: TrainingArguments = SFTConfig(
        **{**plain_defaults(SFTConfig), **fields, **of_trainer, **own}
    )
    return config


def preference_config(
    fields: Mapping[str, Any], *, trainer: str, parameters: Mapping[str, Any]
) -> TrainingArguments:
    """The configuration of a preference trainer, for pairs that have been prepared and cut.

    Fields of ``TrainingArguments`` get their defaults as in ``sft_config``. Raises ValueError for a
    parameter that a trial may not set.
    """
    import trl

    config_class = getattr(trl, PREFERENCE_TRAINERS[trainer].config)
    given = checked_preferences(trainer, parameters)
    config: TrainingArguments = config_class(
        **{**plain_defaults(config_class), **fields, **given, "max_length": None}
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
