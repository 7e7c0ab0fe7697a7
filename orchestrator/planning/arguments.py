"""The training arguments of the installed transformers, and which of them a user may not set.

An axis or the runner decides those.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.library_facts import facts

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
    if name in RUNNER:
        return RUNNER[name]
    # How an evaluation is made decides its memory. When it is made does not.
    if name == "eval_accumulation_steps":
        return None
    # Some families of arguments have no use in a trial.
    for prefix, reason in RUNNER_PREFIXES.items():
        if name.startswith(prefix):
            return reason
    return None


@functools.cache
def owned_arguments() -> dict[str, str]:
    """Training argument -> the technique axis that sets it."""
    owners: dict[str, str] = {}
    for axis in AXES.values():
        names = set()
        if axis.integer_argument:
            names.add(axis.integer_argument)
        for variant in axis.variants.values():
            names.update(variant.training_arguments)
        # The user may write an argument by its name in a newer transformers.
        names |= {RENAMED[name] for name in names if name in RENAMED}
        # Sorted, because a set has no order and errors list the names.
        owners |= dict.fromkeys(sorted(names), axis.name)
    return owners


def older_name(argument: str) -> str:
    """The older of an argument's two names, which rows of techniques use and all versions take."""
    return next((old for old, new in RENAMED.items() if argument == new), argument)


def argument_names() -> frozenset[str] | None:
    """Every field of the installed ``TrainingArguments``; None if transformers is not installed.

    A renamed argument is valid under both names.
    """
    defaults = argument_defaults()
    if defaults is None:
        return None
    return frozenset({*defaults, *RENAMED, *RENAMED.values()})


@functools.cache
def argument_defaults() -> dict[str, Any] | None:
    """Every field of the installed ``TrainingArguments`` -> its default.

    The default is ``...`` if it is not a plain value. None if transformers is not installed.
    """
    fields = facts().get("training_arguments")
    if fields is None:
        return None
    return {name: default[0] if default else ... for name, default in fields.items()}
