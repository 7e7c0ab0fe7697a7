"""The user's own TrainingArguments and DeepSpeed file, which every trial starts from.

They are checked for contradictions with the axes of the sweep.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.permissions import argument_refusals, deepspeed_refusals
from jobs.spec import Choice, DataSpec
from jobs.techniques import AXES
from orchestrator.planning.arguments import argument_names, owned_arguments
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
from orchestrator.planning.prechecks.arguments_file import usable_arguments
from orchestrator.planning.problems import ConfigError, KeyPath, Problem, advice, described
from orchestrator.storage.redaction import secret_paths

CUSTOM = "custom"
"""The value of an axis that the user's own arguments or DeepSpeed file decide."""
DEFAULT = "default"
"""The value of an argument's axis if a trial does not set the argument."""

_NEVER_RECORDED = ("loggers",)
"""Keys whose values may be secrets: run.json shows them as ``***``."""
_BATCH_KEYS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


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
    notes: list[str] = []
    left_aside: dict[str, Any] = {}
    arguments = _part(document, "training_arguments", problems)
    deepspeed = _part(document, "deepspeed", problems)
    if arguments is not None:
        is_own_file = arguments.document is not document
        if is_own_file and deepspeed is None and arguments.value.get("deepspeed"):
            # As for the Trainer, the arguments file may name the DeepSpeed file.
            deepspeed = _part(arguments.document, "deepspeed", problems)
        arguments, left_aside, note = usable_arguments(arguments, used, is_own_file=is_own_file)
        notes += note
    # Records would repeat a secret anywhere in the file, except in the keys that no trial needs.
    recorded = {key: value for key, value in document.value.items() if key not in _NEVER_RECORDED}
    problems += secret_problems(DocumentPart(document=document, at=(), value=recorded))
    problems += _problems_of(arguments, deepspeed, used)
    return BaseArguments(
        training_arguments=_value_of(arguments) or {},
        left_aside={
            name: value
            for name, value in left_aside.items()
            if not any(secret_paths({name: value}))
        },
        deepspeed=_value_of(deepspeed),
        problems=tuple(problems),
        notes=tuple(notes),
    )


def _problems_of(
    arguments: DocumentPart | None, deepspeed: DocumentPart | None, used: Collection[str]
) -> Iterator[Problem]:
    """What is wrong with the arguments, and with DeepSpeed's settings."""
    if arguments is not None:
        yield from argument_problems(arguments, used)
        yield from secret_problems(arguments)
    if deepspeed is not None:
        yield from deepspeed_problems(deepspeed, used)
        yield from secret_problems(deepspeed)


def _part(document: Document, key: str, problems: list[Problem]) -> DocumentPart | None:
    """The mapping under a key; None if there is none. Adds its problems to ``problems``."""
    try:
        return part_of(document, key)
    except ConfigError as error:
        # The file that the key names cannot be read.
        problems += error.problems
        return None


def _value_of(part: DocumentPart | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return part.value


def argument_problems(part: DocumentPart, used: Collection[str]) -> Iterator[Problem]:
    """The problems of the user's training arguments in a sweep with the axes ``used``."""
    for name, value in part.value.items():
        problem = _argument_problem(name, value, used)
        if problem:
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
    if "precision" in used:
        yield from _precision_problems(part)
    yield from _section_problems(part)
    if "optimizer" in part.value and "optimizer" in used:
        yield part.problem(("optimizer",), 'contradicts the axis "optimizer"; remove one of them')


def _precision_problems(part: DocumentPart) -> Iterator[Problem]:
    for name in ("bf16", "fp16"):
        section = part.value.get(name)
        if isinstance(section, dict) and section.get("enabled", "auto") != "auto":
            yield part.problem((name, "enabled"), 'must be auto: the axis "precision" decides it')


def _section_problems(part: DocumentPart) -> Iterator[Problem]:
    """Problems of ``zero_optimization``: no mappings, or a section that would have no effect.

    Later code reads from these sections what is offloaded.
    """
    zero = part.value.get("zero_optimization")
    sections: dict[KeyPath, Any] = {("zero_optimization",): zero}
    if isinstance(zero, dict):
        for key in ("offload_optimizer", "offload_param"):
            sections["zero_optimization", key] = zero.get(key)
    for at, section in sections.items():
        if section is not None and not isinstance(section, dict):
            yield part.problem(at, f"must be a mapping, not {described(section)}")
    if isinstance(zero, dict) and zero.get("zenflow") is not None:
        # accelerate.utils.deepspeed.DeepSpeedEngineWrapper.backward sets the engine's boundary.
        message = (
            "has no effect under the Trainer: Accelerate itself tells DeepSpeed when to update, in "
            "place of ZenFlow's intervals"
        )
        yield part.problem(("zero_optimization", "zenflow"), message)


def baseline(grids: Grids, base: BaseArguments, data: DataSpec) -> Choices:
    """Every axis with a value.

    As the file says; else each axis's first value; else the user's own arguments; else the axis's
    default.
    """
    # A training argument that only subsets, trials or exclusions name keeps its value from outside
    # the sweep in all other trials.
    named: set[str] = set().union(*grids.subsets.values(), *grids.trials, *grids.exclude)
    choices: dict[str, Choice] = {}
    for argument in sorted(named - {*AXES, EFFECTIVE_BATCH}):
        choices[argument] = base.training_arguments.get(argument, DEFAULT)
    # Technique axes, then what the sweep's own axes and baseline lay over them.
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
        if argument not in arguments:
            continue
        # An integer is a value of its axis. Any other argument may equal no variant of its axis, so
        # the choice is "custom".
        choices[owner] = CUSTOM
        if AXES[owner].integer_argument:
            choices[owner] = arguments[argument]
    # A DeepSpeed file decides the offload axis, and the optimizer if it names one.
    if deepspeed is not None:
        choices["offload"] = CUSTOM
        if "optimizer" in deepspeed:
            choices["optimizer"] = CUSTOM
    return choices


_MESSAGE = (
    "looks like a secret, and records, tables and exported scripts would show it; remove it, and"
    " give it in the environment (HF_TOKEN is the Hub's token)"
)


def secret_problems(part: DocumentPart) -> Iterator[Problem]:
    """A problem for each value that looks like a secret."""
    for at in secret_paths(part.value):
        yield part.problem(at, _MESSAGE)
