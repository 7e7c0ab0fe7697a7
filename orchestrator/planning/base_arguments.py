"""The user's own TrainingArguments and DeepSpeed file, which every trial starts from, without what
a trial cannot use, and checked against the axes of the sweep.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.permissions import argument_refusals, deepspeed_refusals
from jobs.spec import Choice, DataSpec
from jobs.techniques import AXES
from orchestrator.planning.arguments import (
    CUSTOM,
    argument_defaults,
    argument_names,
    owned_arguments,
    runner_reason,
)
from orchestrator.planning.axes import (
    EFFECTIVE_BATCH,
    SEQUENCE_LENGTH,
    Choices,
    Grids,
    deciding_axis,
    integer_problem,
    overlay,
)
from orchestrator.planning.document import Document, DocumentPart, part_of
from orchestrator.planning.library_facts import installed_version
from orchestrator.planning.problems import ConfigError, KeyPath, Problem, advice, described
from orchestrator.storage.redaction import secret_paths

DEFAULT = "default"
"""The value of an argument's axis if a trial does not set the argument."""

_NEVER_RECORDED = ("loggers",)
"""Keys whose values may be secrets: run.json shows them as ``***``."""
_BATCH_KEYS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)

_FORMER = """
overwrite_output_dir evaluation_strategy per_gpu_train_batch_size per_gpu_eval_batch_size
warmup_ratio logging_dir save_safetensors no_cuda use_mps_device jit_mode_eval use_ipex
fp16_opt_level half_precision_backend tpu_num_cores tpu_metrics_debug past_index adafactor
group_by_length use_legacy_prediction_loop include_inputs_for_metrics fp16_backend mp_parameters
torchdynamo ray_scope include_tokens_per_second dispatch_batches split_batches
"""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseArguments:
    """The user's own arguments and DeepSpeed file, with what is wrong in them."""

    training_arguments: Mapping[str, Any]
    left_aside: Mapping[str, Any]
    """Those of the user's arguments that no trial uses, without secrets."""
    deepspeed: Mapping[str, Any] | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """What was left out of the user's file, in one line."""


def read_base_arguments(document: Document, used: Collection[str]) -> BaseArguments:
    """Read the arguments in the document, or in the files that it names.

    ``used`` are the axes of the sweep. Arguments that a measurement decides itself are left aside,
    with a note. So are those of a file of the user's own training that an axis decides; in the
    document they are a problem.
    """
    problems: list[Problem] = []
    none = DocumentPart(document=document, at=(), value={})
    arguments = _part(document, "training_arguments", problems) or none
    deepspeed = _part(document, "deepspeed", problems)
    is_own_file = arguments.document is not document
    if is_own_file and deepspeed is None and arguments.value.get("deepspeed"):
        # As for the Trainer, the arguments file may name the DeepSpeed file.
        deepspeed = _part(arguments.document, "deepspeed", problems)
    arguments, left_aside, notes = usable_arguments(arguments, used, is_own_file=is_own_file)
    # Records would repeat a secret anywhere in the file, except in the keys that no trial needs.
    recorded = {key: value for key, value in document.value.items() if key not in _NEVER_RECORDED}
    problems += secret_problems(replace(none, value=recorded))
    problems += argument_problems(arguments, used)
    problems += secret_problems(arguments)
    if deepspeed is not None:
        problems += deepspeed_problems(deepspeed, used)
        problems += secret_problems(deepspeed)
    return BaseArguments(
        training_arguments=arguments.value,
        left_aside={
            name: value
            for name, value in left_aside.items()
            if not any(secret_paths({name: value}))
        },
        deepspeed=None if deepspeed is None else deepspeed.value,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _part(document: Document, key: str, problems: list[Problem]) -> DocumentPart | None:
    """The mapping under a key; None if there is none. Adds its problems to ``problems``."""
    try:
        return part_of(document, key)
    except ConfigError as error:
        problems += error.problems
        return None


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
    listed = [f"{reason} ({', '.join(names)})" for reason, names in ignored.items()]
    notes = [f"{part.document.file}: left aside: {'; '.join(listed)}"] if listed else []
    return replace(part, value=kept), left_aside, notes


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
    if name in _FORMER.split() and fields is not None and name not in fields:
        if value and name in _TODAY:
            return f"what is written {_TODAY[name]} today"
        return f"what transformers {installed_version('transformers')} no longer has"
    return ""


def argument_problems(part: DocumentPart, used: Collection[str]) -> Iterator[Problem]:
    """The problems of the user's training arguments in a sweep with the axes ``used``."""
    for name, value in part.value.items():
        if problem := _argument_problem(name, value, used):
            yield part.problem((name,), problem)


def _argument_problem(name: str, value: Any, used: Collection[str]) -> str:
    # The most helpful answer comes first: its name may be misspelt, or an axis may set it.
    fields = argument_names()
    if fields is not None and name not in fields:
        return f"TrainingArguments has no such field; {advice(name, sorted(fields))}"
    for _, reason in argument_refusals({name: value}):
        return reason
    axis = deciding_axis(name, used)
    if axis is not None:
        return f'contradicts the axis "{axis}", which sets it; remove one of them'
    owner = AXES.get(owned_arguments().get(name, name))
    if owner is not None and owner.integer_argument:
        return integer_problem(value) or ""
    return ""


def deepspeed_problems(part: DocumentPart, used: Collection[str]) -> Iterator[Problem]:
    """Values of the user's DeepSpeed file that would contradict the trial's arguments."""
    yield from itertools.starmap(part.problem, deepspeed_refusals(part.value))
    # The value "auto" makes DeepSpeed take the trial's own value.
    for name in _BATCH_KEYS:
        if part.value.get(name, "auto") != "auto":
            message = "must be auto: the axes micro_batch and accumulation decide it"
            yield part.problem((name,), message)
    # A file that sets the precision would override the axis.
    for name in ("bf16", "fp16") if "precision" in used else ():
        section = part.value.get(name)
        if isinstance(section, dict) and section.get("enabled", "auto") != "auto":
            yield part.problem((name, "enabled"), 'must be auto: the axis "precision" decides it')
    yield from _zero_problems(part)
    if "optimizer" in part.value and "optimizer" in used:
        yield part.problem(("optimizer",), 'contradicts the axis "optimizer"; remove one of them')


def _zero_problems(part: DocumentPart) -> Iterator[Problem]:
    """Sections that are no mappings, in which later code reads what is offloaded, and ZenFlow."""
    at: KeyPath = ("zero_optimization",)
    zero = part.value.get("zero_optimization")
    sections = {at: zero}
    if isinstance(zero, dict):
        sections |= {(*at, key): zero.get(key) for key in ("offload_optimizer", "offload_param")}
        if zero.get("zenflow") is not None:
            # accelerate.utils.deepspeed.DeepSpeedEngineWrapper.backward sets the boundary.
            message = (
                "has no effect under the Trainer: Accelerate itself tells DeepSpeed when to update,"
                " in place of ZenFlow's intervals"
            )
            yield part.problem((*at, "zenflow"), message)
    for place, section in sections.items():
        if section is not None and not isinstance(section, dict):
            yield part.problem(place, f"must be a mapping, not {described(section)}")


def baseline(grids: Grids, base: BaseArguments, data: DataSpec) -> Choices:
    """Each axis's value: the file's, else its first, else the user's own, else the default."""
    # A training argument that only subsets, trials or exclusions name keeps its value from outside
    # the sweep in all other trials.
    named: set[str] = set().union(*grids.subsets.values(), *grids.trials, *grids.exclude)
    arguments = sorted(named - {*AXES, EFFECTIVE_BATCH})
    choices = {name: base.training_arguments.get(name, DEFAULT) for name in arguments}
    choices |= _base_choices(base.training_arguments, base.deepspeed)
    if SEQUENCE_LENGTH in {*grids.axes, *named} and data.synthetic is not None:
        # Lengths that are numbers can be compared. What a file has is known only when it is read.
        choices[SEQUENCE_LENGTH] = data.synthetic.sequence_length
    first_values = {axis: values[0] for axis, values in grids.axes.items()}
    return overlay(choices, overlay(first_values, grids.baseline))


def _base_choices(
    arguments: Mapping[str, Any], deepspeed: Mapping[str, Any] | None
) -> dict[str, Choice]:
    """The value of every technique axis if the sweep sets none: the user's, else the default."""
    choices: dict[str, Choice] = {name: axis.default for name, axis in AXES.items()}
    for argument, owner in owned_arguments().items():
        if argument in arguments:
            # An integer is a value of its axis. Any other argument may equal no variant.
            is_value = AXES[owner].integer_argument
            choices[owner] = arguments[argument] if is_value else CUSTOM
    # A DeepSpeed file decides the offload axis, and the optimizer if it names one.
    if deepspeed is not None:
        choices["offload"] = CUSTOM
        if "optimizer" in deepspeed:
            choices["optimizer"] = CUSTOM
    return choices


def secret_problems(part: DocumentPart) -> Iterator[Problem]:
    """A problem for each value that looks like a secret."""
    message = (
        "looks like a secret, and records, tables and exported scripts would show it; remove it,"
        " and give it in the environment (HF_TOKEN is the Hub's token)"
    )
    for at in secret_paths(part.value):
        yield part.problem(at, message)
