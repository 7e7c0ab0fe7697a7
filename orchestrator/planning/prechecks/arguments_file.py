"""The user's own TrainingArguments file taken as it is: what a measurement decides itself is left
aside, and named in one line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from jobs.techniques import AXES
from orchestrator.planning.arguments import (
    argument_defaults,
    argument_names,
    owned_arguments,
    runner_reason,
)
from orchestrator.planning.axes import deciding_axis
from orchestrator.planning.document import Part

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
"""Fields of TrainingArguments in transformers 4 that version 5 has no more."""
_TODAY: Mapping[str, str] = {
    "adafactor": "optim: adafactor",
    "group_by_length": "train_sampling_strategy: group_by_length",
    "per_gpu_train_batch_size": "per_device_train_batch_size",
}
"""Former fields that change the cost of a step if they are set -> how they are written today."""
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
"""Prefixes of arguments that only say what is written where."""


def without_what_is_decided(part: Part, used: Collection[str]) -> tuple[Part, list[str]]:
    """The file's arguments that a trial keeps, and a note about the others.

    ``used`` are the axes of the sweep. What transformers never knew is kept, to be reported.
    """
    kept: dict[str, Any] = {}
    aside: dict[str, list[str]] = {}
    for name, value in part.value.items():
        if _is_default(name, value):
            continue  # a file that the Trainer wrote has every field
        reason = _reason(name, value, used)
        if reason:
            aside.setdefault(reason, []).append(name)
        else:
            kept[name] = value
    return replace(part, value=kept), list(_note(part, aside))


def _note(part: Part, aside: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What was left aside, by its reason; nothing if everything was kept."""
    if aside:
        listed = [f"{reason} ({', '.join(names)})" for reason, names in aside.items()]
        yield f"{part.document.file}: left aside: {'; '.join(listed)}"


def _is_default(name: str, value: Any) -> bool:
    """Whether an argument says what TrainingArguments, or the default of its axis, says anyway."""
    default = (argument_defaults() or {}).get(name, ...)
    # transformers fills in what nothing was said about: false, empty lists, accelerate's own table.
    if default in (None, ...) and (value in (False, None, "") or value in _FILLED_IN):
        return True
    values = [default]
    axis = AXES.get(owned_arguments().get(name, ""))
    if axis is not None and isinstance(axis.default, str):
        values.append(axis.variants[axis.default].training_arguments.get(name, ...))
    # By type, too: to Python 0 and False are equal.
    return any(type(value) is type(known) and value == known for known in values)


def _reason(name: str, value: Any, used: Collection[str]) -> str:
    """Why a trial has no use for an argument of the file; empty if it keeps the argument."""
    if runner_reason(name) or name.startswith(_LOGGING):
        return "what a measurement decides itself"
    axis = deciding_axis(name, used)
    if axis is not None:
        return f"what the axis {axis} decides"
    fields = argument_names()
    if name in _FORMER and fields is not None and name not in fields:
        if value and name in _TODAY:
            return f"what is written {_TODAY[name]} today"
        return f"what {_library()} no longer has"
    return ""


def _library() -> str:
    try:
        return f"transformers {version('transformers')}"
    except PackageNotFoundError:
        return "transformers"
