"""The installed transformers' training arguments: which an axis or the runner decides, and which of
the user's are values of axes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jobs.spec import Choice
from jobs.techniques import AXES, Axis, Variant
from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.library_facts import facts

CUSTOM = "custom"
"""The value of an axis that the user's own arguments or DeepSpeed file decide."""
RUNNER: Mapping[str, str] = {
    "output_dir": 'the runner writes to "output"',
    "max_steps": 'set "measure.steps"',
    "num_train_epochs": 'set "measure.steps", an integer or "epoch"',
    "seed": 'set "measure.seed"',
    "deepspeed": 'write it as the top-level key "deepspeed"',
    "use_cpu": "a trial uses the GPU where its node has one",
    "report_to": "the runner keeps every figure itself",
    "disable_tqdm": "the runner shows the progress",
    "log_level": "the runner keeps each trial's log",
    "auto_find_batch_size": 'sweep the axis "micro_batch"',
    "skip_memory_metrics": "the runner's trackers measure memory without its busy thread",
    "enable_jit_checkpoint": "nothing is saved during a measurement",
    "load_best_model_at_end": "nothing is saved during a measurement",
    "restore_callback_states_from_checkpoint": "a trial starts from the model's own weights",
    "resume_from_checkpoint": "a trial starts from the model's own weights",
    "do_train": "a trial trains, and nothing else",
    "do_predict": "a trial trains, and nothing else",
    "do_eval": "a trial trains, and nothing else",
    "local_rank": "a trial has one process and one GPU",
    "parallelism_config": "a trial has one process and one GPU",
}
"""Training argument that the user may not set -> why, or what to use instead."""
RUNNER_PREFIXES: Mapping[str, str] = {
    "eval_": "measure.evaluate_and_save measures one evaluation, after the training",
    "save_": "nothing is saved during a measurement",
    "push_to_hub": "nothing is saved during a measurement",
    "trackio_": "the runner keeps every figure itself",
    "hub_": "nothing is saved during a measurement",
    "fsdp": "a trial has one process and one GPU",
    "ddp_": "a trial has one process and one GPU",
}
"""Prefix of arguments that the user may not set -> why."""


def runner_reason(name: str) -> str | None:
    """Why the user may not set a training argument, or what to use instead; None if allowed."""
    # How an evaluation is made decides its memory. When it is made does not.
    if name in RUNNER or name == "eval_accumulation_steps":
        return RUNNER.get(name)
    families = (why for prefix, why in RUNNER_PREFIXES.items() if name.startswith(prefix))
    return next(families, None)


@functools.cache
def owned_arguments() -> dict[str, str]:
    """Training argument -> the technique axis that sets it."""
    owners: dict[str, str] = {}
    for axis in AXES.values():
        names = {axis.integer_argument or ""}
        names = names.union(*(row.training_arguments for row in axis.variants.values())) - {""}
        # The user may write an argument by its name in a newer transformers.
        names |= {RENAMED[name] for name in names & RENAMED.keys()}
        # Sorted, because a set has no order and errors list the names.
        owners |= dict.fromkeys(sorted(names), axis.name)
    return owners


def older_name(argument: str) -> str:
    """The older of an argument's two names, which rows of techniques use and all versions take."""
    return next((old for old, new in RENAMED.items() if argument == new), argument)


def argument_names() -> frozenset[str] | None:
    """Fields of the installed ``TrainingArguments``, by old and new names; None without it."""
    defaults = argument_defaults()
    return None if defaults is None else frozenset({*defaults, *RENAMED, *RENAMED.values()})


@functools.cache
def argument_defaults() -> dict[str, Any] | None:
    """Field of ``TrainingArguments`` -> its default, ``...`` if not plain; None without it."""
    fields = facts().get("training_arguments")
    if fields is None:
        return None
    return {name: default[0] if default else ... for name, default in fields.items()}


def with_own_values(
    baseline: Mapping[str, Choice], arguments: Mapping[str, Any]
) -> tuple[dict[str, Choice], dict[str, Any]]:
    """The baseline and the training arguments, of which those that an axis has become its value."""
    choices = dict(baseline)
    kept = dict(arguments)
    owners = owned_arguments()
    for name, axis in AXES.items():
        # Under the names in the axis's rows.
        own = {older_name(key): kept[key] for key in kept if owners.get(key) == name}
        if axis.integer_argument or not own or baseline.get(name) != CUSTOM:
            continue
        value = _value_of(axis, own)
        if value is not None:
            choices[name] = value
            kept = {key: kept[key] for key in kept if older_name(key) not in own}
    # The baseline already has the arguments of the batch, as integers of their axes.
    batch = {axis.integer_argument for axis in AXES.values()}
    return choices, {key: value for key, value in kept.items() if key not in batch}


def _value_of(axis: Axis, own: Mapping[str, Any]) -> str | None:
    """The value of the axis that sets the user's arguments; None if no value does. If several do,
    it is the one with the fewest arguments that the user did not set."""
    fitting = {name: row for name, row in axis.variants.items() if _has_arguments(own, row)}

    def beyond(name: str) -> tuple[int, int]:
        variant = fitting[name]
        unset = variant.training_arguments.keys() - own.keys()
        return len(unset), len(variant.model_kwargs) + len(variant.hooks)

    return min(fitting, key=beyond, default=None)


def _has_arguments(own: Mapping[str, Any], variant: Variant) -> bool:
    """Whether a variant has the user's arguments: none contradicts it, and all its switches are on.

    A switch that the user has not set is off. Other arguments are details of a switch, so they may
    be missing.
    """
    given = variant.training_arguments
    is_equal = all((value or None) == (given.get(name) or None) for name, value in own.items())
    return is_equal and {name for name, value in given.items() if value is True} <= own.keys()
