"""Generates the values for TRL's Trainers in train.py and its settings."""

from typing import Any

from jobs.errors import UnsupportedError
from jobs.spec import TrialSpec
from jobs.techniques.hooks import hook_name, service
from orchestrator.export.generated_code import NotExportableError, literal
from orchestrator.export.source_lifting import lifted

SFT = "trl_sft_loop"
PREFERENCE = "trl_preference_loop"
"""The names of the loops' hooks."""


def trl_arguments(spec: TrialSpec) -> dict[str, Any]:
    """Fields of the loop's configuration class; empty for a loop that is not TRL's. Raises
    NotExportableError for a parameter that no trial may set."""
    loop = hook_name(spec, "loop")
    if loop not in (SFT, PREFERENCE):
        return {}
    settings: dict[str, Any] = {
        # TRL's own defaults are other techniques. Its learning rate and logging are kept, because
        # they change neither memory nor speed.
        "bf16": False,
        "gradient_checkpointing": False,
    }
    if loop == SFT:
        batching = hook_name(spec, "batching")
        settings["packing"] = batching in ("packed_rows", "packed_whole_rows")
        settings["padding_free"] = batching == "flattened_rows"
    settings["max_length"] = _limit_of_trl(spec)
    if spec.data.synthetic is not None and spec.data.synthetic.padding:
        settings["pad_to_multiple_of"] = spec.data.tokens
    return {**settings, **_parameters(spec, loop)}


def _limit_of_trl(spec: TrialSpec) -> int | None:
    """Number of tokens to which TRL itself is to cut; None: it is not to cut."""
    match hook_name(spec, "batching"):
        case "packed_rows" | "packed_whole_rows":
            return spec.data.tokens
        case "flattened_rows":  # TRL refuses a limit; ``CuttingTrainer`` of train.py cuts the rows
            return None
        case _:
            return _row_limit(spec)


def _row_limit(spec: TrialSpec) -> int | None:
    """Number of tokens to which a row, or an answer with its prompt, is cut; None: no limit."""
    file = spec.data.file
    if file is None:
        return None
    # Rows of token ids have another limit than texts, which are cut by the tokenizer.
    return file.max_length if file.tokenizer is not None else file.max_tokens


def _parameters(spec: TrialSpec, loop: str) -> dict[str, Any]:
    place, check = ("rows", "checked_sft") if loop == SFT else ("preferences", "checked_dpo")
    prepared = spec.settings.hooks.get(place)
    if prepared is None:
        raise NotExportableError("the trial does not say how TRL prepares its rows")
    try:
        checked: dict[str, Any] = service(check)(**prepared.arguments)
    except (UnsupportedError, ValueError) as error:
        raise NotExportableError(str(error)) from None
    return checked


def trl_code(spec: TrialSpec) -> dict[str, Any]:
    """The values that the templates need for the data and the Trainer of TRL."""
    if hook_name(spec, "loop") not in (SFT, PREFERENCE):
        return {}  # the modules of these functions take seconds to import
    limit = _row_limit(spec)
    functions = ("without_padding", "padding_tokenizer", "reference_copy", "drop_copied_adapter")
    return {
        "cuts_rows": hook_name(spec, "batching") == "flattened_rows" and limit is not None,
        "row_limit": literal(limit),
        "block_tokens": literal(int(spec.data.tokens)),
        **{function: lifted(service(function)) for function in functions},
    }
