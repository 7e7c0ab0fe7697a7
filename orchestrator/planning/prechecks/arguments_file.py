"""The user's own TrainingArguments file, unchanged. Arguments that a trial cannot use are ignored.

One note names the ignored arguments, with the reasons.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.techniques import AXES
from orchestrator.planning.arguments import (
    argument_defaults,
    argument_names,
    owned_arguments,
    runner_reason,
)
from orchestrator.planning.axes import deciding_axis
from orchestrator.planning.document import DocumentPart
from orchestrator.planning.library_facts import installed_version

_FORMER = frozenset(
    {
        "overwrite_output_dir",
        "evaluation_strategy",
        "per_gpu_train_batch_size",
        "per_gpu_eval_batch_size",
        "warmup_ratio",
        "logging_dir",
        "save_safetensors",
        "no_cuda",
        "use_mps_device",
        "jit_mode_eval",
        "use_ipex",
        "fp16_opt_level",
        "half_precision_backend",
        "tpu_num_cores",
        "tpu_metrics_debug",
        "past_index",
        "adafactor",
        "group_by_length",
        "use_legacy_prediction_loop",
        "include_inputs_for_metrics",
        "fp16_backend",
        "mp_parameters",
        "torchdynamo",
        "ray_scope",
        "include_tokens_per_second",
        "dispatch_batches",
        "split_batches",
    }
)
"""Fields of TrainingArguments in transformers 4 that version 5 removed."""
_TODAY: Mapping[str, str] = {
    "adafactor": "optim: adafactor",
    "group_by_length": "train_sampling_strategy: group_by_length",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
}
"""Removed field that changes the cost of a step if it is set -> how to write it today."""
_FILLED_IN: tuple[Any, ...] = (
    [],
    {},
    {
        "split_batches": False,
        "dispatch_batches": None,
        "even_batches": True,
        "use_seedable_sampler": True,
        "non_blocking": False,
        "gradient_accumulation_kwargs": None,
    },
)
"""What a field without a value becomes when TrainingArguments are written to a file."""
_LOGGING = ("logging_", "run_name", "project", "trackio_", "metric_for_best_model", "debug")
"""Prefixes of arguments about logs and names, which do not change the training."""


def usable_arguments(
    part: DocumentPart, used: Collection[str], *, is_own_file: bool
) -> tuple[DocumentPart, dict[str, Any], list[str]]:
    """The arguments that a trial uses, those that it leaves aside, and a note about these.

    ``used`` are the axes of the sweep. An argument that no version of transformers has is kept, so
    that a later check reports it. Beside the axes in one file (not ``is_own_file``), an argument
    that an axis sets is kept, too: the two contradict each other.
    """
    kept: dict[str, Any] = {}
    ignored: dict[str, list[str]] = {}
    for name, value in part.value.items():
        if is_own_file and _is_default(name, value):
            continue  # a file that the Trainer wrote has every field
        reason = _reason(name, value, used if is_own_file else ())
        if reason:
            ignored.setdefault(reason, []).append(name)
        else:
            kept[name] = value
    left_aside = {name: part.value[name] for names in ignored.values() for name in names}
    return replace(part, value=kept), left_aside, list(_note(part, ignored))


def _note(part: DocumentPart, ignored: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A note about the ignored arguments, by reason; nothing if there are none."""
    if ignored:
        listed = [f"{reason} ({', '.join(names)})" for reason, names in ignored.items()]
        yield f"{part.document.file}: left aside: {'; '.join(listed)}"


def _is_default(name: str, value: Any) -> bool:
    """Whether a value is the default of TrainingArguments, or of the argument's axis."""
    default = (argument_defaults() or {}).get(name, ...)
    # What transformers writes for arguments that were not set: false, empty lists, and accelerate's
    # own defaults.
    if default in (None, ...) and (value in (False, None, "") or value in _FILLED_IN):
        return True
    values = [default]
    axis = AXES.get(owned_arguments().get(name, ""))
    if axis is not None and isinstance(axis.default, str):
        values.append(axis.variants[axis.default].training_arguments.get(name, ...))
    # The types are compared, too, because 0 and False are equal in Python.
    return any(type(value) is type(known) and value == known for known in values)


def _reason(name: str, value: Any, used: Collection[str]) -> str:
    """Why a trial ignores an argument of the file; empty if it uses the argument."""
    if runner_reason(name) or name.startswith(_LOGGING):
        return "what a measurement decides itself"
    axis = deciding_axis(name, used)
    if axis is not None:
        return f"what the axis {axis} decides"
    fields = argument_names()
    if name in _FORMER and fields is not None and name not in fields:
        if value and name in _TODAY:
            return f"what is written {_TODAY[name]} today"
        return f"what transformers {installed_version('transformers')} no longer has"
    return ""
