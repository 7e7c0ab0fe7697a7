"""Generates the values for TRL's preference trainers in train.py and its settings."""

from __future__ import annotations

from typing import Any

from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name, service
from orchestrator.export.generated_code import Code, NotExportableError, literal
from orchestrator.export.source_lifting import lifted
from orchestrator.export.trl.sft_code import UNDONE

LOOP = "trl_preference_loop"
"""Name of the loop's hook."""


def preference_arguments(spec: TrialSpec) -> dict[str, Any]:
    """Fields of the Trainer's configuration for the trial; empty for another loop.

    The trial's arguments replace those fields that are also fields of ``TrainingArguments``. Raises
    NotExportableError for a parameter that no trial may set.
    """
    if hook_name(spec, "loop") != LOOP:
        return {}
    settings = {**UNDONE, "max_length": _limit(spec), **_parameters(spec)}
    if spec.data.synthetic is not None and spec.data.synthetic.padding:
        settings.setdefault("pad_to_multiple_of", spec.data.tokens)
    return settings


def _limit(spec: TrialSpec) -> int | None:
    """Number of tokens to which an answer with its prompt is cut; None: it is not cut."""
    if spec.data.file is None:
        return None
    return int(spec.data.file.max_length)


def _parameters(spec: TrialSpec) -> dict[str, Any]:
    """The parameters of the technique. Raises NotExportableError for one that may not be set."""
    pairs = spec.settings.hooks.get("preferences")
    if pairs is None:
        raise NotExportableError("the trial does not say how TRL prepares its pairs")
    trainer = spec.settings.hooks["loop"].arguments.get("trainer")
    try:
        checked: dict[str, Any] = service("checked_dpo")(
            trainer, pairs.arguments.get("parameters", {})
        )
        return checked
    except ValueError as error:
        raise NotExportableError(str(error)) from None


def preference_code(spec: TrialSpec) -> dict[str, Any]:
    """The values that the template needs for the Trainer of pairs."""
    if hook_name(spec, "loop") != LOOP:
        return {}
    return {
        "preference_trainer": Code("trl.DPOTrainer"),
        "preference_limit": literal(_limit(spec)),
        "reference_copy": lifted(service("reference_copy")),
        "drop_copied_adapter": lifted(service("drop_copied_adapter")),
    }
