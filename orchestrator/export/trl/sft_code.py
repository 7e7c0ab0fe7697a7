"""Generates the values for TRL's ``SFTTrainer`` in train.py and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import UnsupportedError
from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name, service
from orchestrator.export.generated_code import Code, NotExportableError, literal
from orchestrator.export.source_lifting import lifted

LOOP = "trl_sft_loop"
"""Name of the loop's hook."""
UNDONE: Mapping[str, Any] = {
    "bf16": False,
    "gradient_checkpointing": False,
    "learning_rate": 5e-5,
    "logging_steps": 500,
}
"""Arguments whose defaults TRL changes -> their defaults in ``TrainingArguments``."""


def sft_arguments(spec: TrialSpec) -> dict[str, Any]:
    """Fields of SFTConfig for the trial; empty for another loop.

    The trial's arguments replace those fields that are also fields of ``TrainingArguments``. Raises
    NotExportableError for a parameter that no trial may set.
    """
    if hook_name(spec, "loop") != LOOP:
        return {}
    return {**UNDONE, **_settings(spec)}


def _settings(spec: TrialSpec) -> dict[str, Any]:
    is_packed = hook_name(spec, "batching") == "packed_rows"
    is_flattened = hook_name(spec, "batching") == "flattened_rows"
    settings: dict[str, Any] = {
        "packing": is_packed,
        "padding_free": is_flattened,
        "max_length": _limit(spec),
        **_parameters(spec),
    }
    if is_packed:
        settings["max_length"] = spec.data.tokens
    elif is_flattened:
        # TRL refuses a limit here. ``CuttingTrainer`` of train.py cuts the rows.
        settings["max_length"] = None
    if spec.data.synthetic is not None and spec.data.synthetic.padding:
        settings.setdefault("pad_to_multiple_of", spec.data.tokens)
    return settings


def _limit(spec: TrialSpec) -> int | None:
    """Number of tokens to which rows are cut; None: rows are not cut."""
    file = spec.data.file
    if file is None:
        return None
    # Rows of token ids have another limit than texts, which are cut by the tokenizer.
    return file.max_length if file.tokenizer is not None else file.max_tokens


def _parameters(spec: TrialSpec) -> dict[str, Any]:
    """The parameters of the technique. Raises NotExportableError for one that may not be set."""
    rows = spec.settings.hooks.get("rows")
    if rows is None:
        raise NotExportableError("the trial does not say how TRL prepares its rows")
    try:
        checked: dict[str, Any] = service("checked_sft")(rows.arguments.get("parameters", {}))
        return checked
    except (UnsupportedError, ValueError) as error:
        raise NotExportableError(str(error)) from None


def sft_code(spec: TrialSpec) -> dict[str, Any]:
    """The values that the template needs for the data and the Trainer of TRL."""
    if hook_name(spec, "loop") != LOOP:
        return {"cuts_rows": False}
    limit = None
    trainer = Code("trl.SFTTrainer")
    if hook_name(spec, "batching") == "flattened_rows" and _limit(spec) is not None:
        limit = _limit(spec)
        trainer = Code("CuttingTrainer")
    return {
        "cuts_rows": limit is not None,
        "sft_trainer": trainer,
        "row_limit": literal(limit),
        "block_tokens": literal(int(spec.data.tokens)),
        "without_padding": lifted(service("without_padding")),
        "padding_tokenizer": lifted(service("padding_tokenizer")),
    }
