"""The user's own TrainingArguments and DeepSpeed file, which every trial starts from."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jobs.permissions import argument_refusals, deepspeed_refusals
from jobs.spec import Choice, DataSpec
from jobs.techniques import AXES, Axis, Variant
from orchestrator.planning.choices.arguments import (
    EXPORTED,
    argument_defaults,
    ignored_reason,
    older_name,
    renamed_today,
    unknown_field,
    value_problem,
)
from orchestrator.planning.choices.axes import (
    EFFECTIVE_BATCH,
    SEQUENCE_LENGTH,
    Choices,
    Grids,
    deciding_axis,
    integer_problem,
    overlay,
    owned_arguments,
)
from orchestrator.planning.document import Document, part_of
from orchestrator.planning.problems import ConfigError, KeyPath, Problem, described
from orchestrator.storage.redaction import secret_paths

CUSTOM = "custom"
"""The value of an axis that the user's own arguments or DeepSpeed file decide."""
DEFAULT = "default"
"""The value of an argument's axis if a trial does not set the argument."""

_BATCH_KEYS = ["train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseArguments:
    """The user's own arguments and DeepSpeed file, with what is wrong in them."""

    choices: Choices
    """The value of every technique axis that the user's arguments decide."""
    training_arguments: Mapping[str, Any]
    """The arguments that no axis has a value for."""
    left_aside: Mapping[str, Any]
    """Those of the user's arguments that no trial uses, without secrets."""
    deepspeed: Mapping[str, Any] | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    """What was left out of the user's file, in one line."""


def read_base_arguments(document: Document, used: Collection[str]) -> BaseArguments:
    """Read the arguments in the document, or in the files that it names.

    ``used`` are the axes of the sweep. Arguments that a measurement decides itself are left aside,
    with a note. So are those of a file of the user's own training that an axis decides; in the
    document they are a problem.
    """
    problems: list[Problem] = []
    given, deepspeed = _given(document, problems)
    settings = None if deepspeed is None else deepspeed.value
    is_own_file = isinstance(document.value.get("training_arguments"), str)
    arguments, left_aside, notes = _usable_arguments(given, used, is_own_file=is_own_file)
    # Records would repeat a secret anywhere in the file, except of loggers: run.json shows ``***``.
    recorded = {key: value for key, value in document.value.items() if key != "loggers"}
    problems += _secret_problems(replace(document, value=recorded))
    carried = {name: left_aside[name] for name in EXPORTED if name in left_aside}
    problems += _argument_problems(replace(given, value={**arguments.value, **carried}), used)
    problems += _secret_problems(arguments)
    if deepspeed is not None:
        problems += _deepspeed_problems(deepspeed, used)
    choices, others = _own_choices(given.value, arguments.value, settings)
    return BaseArguments(
        choices=choices,
        training_arguments=others,
        left_aside={at: own for at, own in left_aside.items() if not any(secret_paths({at: own}))},
        deepspeed=settings,
        problems=tuple(problems),
        notes=notes,
    )


def _given(document: Document, problems: list[Problem]) -> tuple[Document, Document | None]:
    """The arguments under their names of today, and the DeepSpeed file."""
    given = _part(document, "training_arguments", problems) or replace(document, value={})
    own = renamed_today(given.value)
    deepspeed = _part(document, "deepspeed", problems)
    if deepspeed is None and own.get("deepspeed"):
        # As for the Trainer, the arguments may name the DeepSpeed file.
        deepspeed = _part(replace(given, value=own), "deepspeed", problems)
        del own["deepspeed"]
    return replace(given, value=own), deepspeed


def _part(document: Document, key: str, problems: list[Problem]) -> Document | None:
    try:
        return part_of(document, key)
    except ConfigError as error:
        problems += error.problems
        return None


def _usable_arguments(
    part: Document, used: Collection[str], *, is_own_file: bool
) -> tuple[Document, dict[str, Any], tuple[str, ...]]:
    """The arguments that a trial uses, those that it leaves aside, and a note about these.

    An argument that no version of transformers has is kept, so that a later check reports it.
    Beside the axes in one file (not ``is_own_file``), an argument that an axis sets is kept, too:
    the two contradict each other.
    """
    by_reason: dict[str, list[str]] = {}
    for name, value in part.value.items():
        if is_own_file and _is_default(name, value):
            continue  # a file that the Trainer wrote has every field
        reason = ignored_reason(name, value)
        if is_own_file and not reason and (axis := deciding_axis(name, used)):
            reason = f"the axis {axis} decides it"
        by_reason.setdefault(reason, []).append(name)
    kept = {name: part.value[name] for name in by_reason.pop("", ())}
    left_aside = {name: part.value[name] for names in by_reason.values() for name in names}
    listed = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
    notes = (f"{part.file}: left aside: {'; '.join(listed)}",) if listed else ()
    return replace(part, value=kept), left_aside, notes


def _is_default(name: str, value: Any) -> bool:
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


def _argument_problems(part: Document, used: Collection[str]) -> Iterator[Problem]:
    for name in part.value:
        if problem := _argument_problem(part.value, name, used):
            yield part.problem((name,), problem)


def _argument_problem(own: Mapping[str, Any], name: str, used: Collection[str]) -> str:
    value = own[name]
    # The most helpful answer comes first: its name may be misspelt, or an axis may set it.
    if problem := unknown_field(name):
        return problem
    is_carried = name in EXPORTED  # to exported files, and to no trial
    for _, reason in argument_refusals({} if is_carried else {name: value}):
        return reason
    if name == "fp16" and value is True and own.get("bf16") is True:
        return "contradicts bf16: at most one of the two is true; remove one of them"
    if (axis := deciding_axis(name, used)) is not None:
        return f'contradicts the axis "{axis}", which sets it; remove one of them'
    owner = AXES.get(owned_arguments().get(name, name))
    is_integer = owner is not None and owner.integer_argument
    return integer_problem(value) or "" if is_integer else value_problem(name, value)


def _deepspeed_problems(part: Document, used: Collection[str]) -> Iterator[Problem]:
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
    yield from _secret_problems(part)


def _zero_problems(part: Document) -> Iterator[Problem]:
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
    if isinstance(zero, dict) and zero.get("stage", 0) not in range(4):
        yield part.problem((*at, "stage"), "must be 0, 1, 2 or 3")
    for place, section in sections.items():
        if section is not None and not isinstance(section, dict):
            yield part.problem(place, f"must be a mapping, not {described(section)}")


def _secret_problems(part: Document) -> Iterator[Problem]:
    message = (
        "looks like a secret, and records, tables and exported scripts would show it; remove it,"
        " and give it in the environment (HF_TOKEN is the Hub's token)"
    )
    for at in secret_paths(part.value):
        yield part.problem(at, message)


def _own_choices(
    given: Collection[str], arguments: Mapping[str, Any], deepspeed: Mapping[str, Any] | None
) -> tuple[dict[str, Choice], dict[str, Any]]:
    """The value of every axis that a ``given`` name decides, and the arguments that are of none."""
    owners = owned_arguments()
    decided = dict.fromkeys(owners[name] for name in given if name in owners)
    choices: dict[str, Choice] = {name: AXES[name].default for name in decided}
    # A DeepSpeed file decides the offload axis, and the optimizer if it names one.
    if deepspeed is not None:
        choices["offload"] = CUSTOM
        if "optimizer" in deepspeed:
            choices["optimizer"] = CUSTOM
    others = dict(arguments)
    for name, axis in AXES.items():
        own = {key: value for key, value in arguments.items() if owners.get(key) == name}
        if own:
            choices[name] = _value_of(axis, own)
            if choices[name] != CUSTOM:
                others = {key: value for key, value in others.items() if key not in own}
    return choices, others


def _value_of(axis: Axis, own: Mapping[str, Any]) -> Choice:
    """The value of the axis that sets the user's arguments; CUSTOM if no value does. If several do,
    it is the one with the fewest arguments that the user did not set."""
    if axis.integer_argument:
        return own[axis.integer_argument]
    # Under the names in the axis's rows.
    own = {older_name(key): value for key, value in own.items()}
    fitting = {name: row for name, row in axis.variants.items() if _has_arguments(own, row)}

    def beyond(name: str) -> tuple[int, int]:
        variant = fitting[name]
        unset = variant.training_arguments.keys() - own.keys()
        return len(unset), len(variant.model_kwargs) + len(variant.hooks)

    return min(fitting, key=beyond, default=CUSTOM)


def _has_arguments(own: Mapping[str, Any], variant: Variant) -> bool:
    """Whether a variant has the user's arguments: none contradicts it, and all its switches are on.
    A switch that the user has not set is off. Other arguments are details of a switch, so they may
    be missing."""
    given = variant.training_arguments
    is_equal = all((value or None) == (given.get(name) or None) for name, value in own.items())
    return is_equal and {name for name, value in given.items() if value is True} <= own.keys()


def own_defaults(grids: Grids) -> Mapping[str, str]:
    """What the library that trains in the baseline sets where the user does not."""
    axis = AXES["loop"]
    (first, *_) = grids.axes.get(axis.name, (axis.default,))
    return axis.variant(grids.baseline.get(axis.name, first)).own_defaults


def baseline(grids: Grids, base: BaseArguments, data: DataSpec) -> Choices:
    """Each axis's value: the file's, else its first, else the user's own, else the default."""
    # A training argument that only subsets, trials or exclusions name keeps its value from outside
    # the sweep in all other trials.
    named: set[str] = set().union(*grids.subsets.values(), *grids.trials, *grids.exclude)
    arguments = sorted(named - {*AXES, EFFECTIVE_BATCH})
    choices = {name: base.training_arguments.get(name, DEFAULT) for name in arguments}
    choices |= {name: axis.default for name, axis in AXES.items()}
    choices |= {**own_defaults(grids), **base.choices}
    if SEQUENCE_LENGTH in {*grids.axes, *named} and data.synthetic is not None:
        # Lengths that are numbers can be compared. What a file has is known only when it is read.
        choices[SEQUENCE_LENGTH] = data.synthetic.sequence_length
    first_values = {axis: values[0] for axis, values in grids.axes.items()}
    return overlay(choices, overlay(first_values, grids.baseline))
