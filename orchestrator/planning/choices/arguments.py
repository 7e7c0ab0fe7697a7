"""The training arguments of the installed transformers, and which of them the runner decides."""

import functools
from collections.abc import Mapping
from typing import Any

from jobs.library_facts.value_types import accepts
from jobs.techniques import AXES
from jobs.techniques.axes.activations import RENAMED
from orchestrator.planning.library_facts import facts, installed_version
from orchestrator.planning.problems import advice, described

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
    "enable_jit_checkpoint": "nothing is saved during the steps of a measurement",
    "load_best_model_at_end": "measure.evaluate_and_save: {load_best: true} measures it",
    "restore_callback_states_from_checkpoint": "a trial starts from the model's own weights",
    "resume_from_checkpoint": "measure.evaluate_and_save: {resume: true} measures it",
    "do_train": "every trial trains",
    "do_predict": "measure.evaluate_and_save measures one evaluation, after the training",
    "do_eval": "measure.evaluate_and_save measures one evaluation, after the training",
    "local_rank": "a trial starts its own processes, one for each of resources.gpus_per_trial",
    "parallelism_config": 'sweep the axis "sharding"',
}
"""Training argument that the user may not set -> why, or what to use instead."""
RUNNER_PREFIXES: Mapping[str, str] = {
    "eval_": "measure.evaluate_and_save measures one evaluation, after the training",
    "save_": "measure.evaluate_and_save measures one checkpoint, after the training",
    "push_to_hub": "a measurement uploads nothing",
    "trackio_": "the runner keeps every figure itself",
    "hub_": "a measurement uploads nothing",
    "fsdp": 'sweep the axis "sharding"',
    "ddp_": 'sweep the axis "sharding"',
}
"""Prefix of arguments that the user may not set -> why."""
FORMER = """
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
_SUCCESSORS: Mapping[str, str] = {"warmup_ratio": "warmup_steps"}
"""Removed field -> the one that takes the same value today."""
_OTHER_WORDS = {"lr": "learning_rate", "batch_size": "per_device_train_batch_size"}
"""What people and other trainers call a field."""
LOGGING = ("logging_steps", "logging_strategy", "logging_first_step", "run_name", "project")
"""Arguments about logs that exported files take from the user."""
EXPORTED = ("num_train_epochs", "max_steps", "seed", *LOGGING)
"""Arguments that the runner decides, and that exported files take from the user."""
_LOGGING = ("logging_", "run_name", "project", "trackio_", "metric_for_best_model", "debug")
"""Prefixes of arguments about logs and names, which do not change the training."""


def runner_reason(name: str) -> str | None:
    """Why the user may not set a training argument, or what to use instead; None if allowed."""
    # How an evaluation is made decides its memory. When it is made does not.
    if name in RUNNER or name == "eval_accumulation_steps":
        return RUNNER.get(name)
    families = (why for prefix, why in RUNNER_PREFIXES.items() if name.startswith(prefix))
    return next(families, None)


def older_name(argument: str) -> str:
    """The older of an argument's two names, which rows of techniques use and all versions take."""
    return next((old for old, new in RENAMED.items() if argument == new), argument)


def renamed_today(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the names that the installed version has, where a field was renamed and
    its successor is not given, too."""
    fields = argument_names() or frozenset(arguments)
    names = {
        name: _SUCCESSORS[name]
        for name in _SUCCESSORS.keys() & arguments.keys() - fields
        if not arguments.get(_SUCCESSORS[name])
    }
    return {names.get(name, name): value for name, value in arguments.items()}


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


def unknown_field(name: str) -> str:
    """Why there is no such field, and what is meant; empty if there is, or if that is unknown."""
    fields = argument_names()
    if fields is None or name in fields:
        return ""
    if name in AXES:
        return "is an axis, and no training argument: write it under axes or baseline"
    word = _OTHER_WORDS.get(name, name)
    return f"TrainingArguments has no such field; {advice(word, sorted(fields))}"


def value_problem(name: str, value: Any) -> str:
    """Why the installed libraries would refuse a value of a field; empty if they would not."""
    kind = facts().get("argument_types", {}).get(name, {})
    accepted = kind.get("accepts", ["any"])
    if value is None:
        return ""  # files that libraries wrote have it for fields without a value
    if isinstance(value, str):
        known = facts().get("argument_values", {}).get(name)
        if known is not None:
            return "" if value in known else f'there is no "{value}"; {advice(value, known)}'
        # YAML reads 1e-5 as text, which is a number all the same.
        if {"float", "int", "null"}.issuperset(map(str, accepted)):
            return "" if _is_number(value) else f'"{value}" is no number'
    return "" if accepts(accepted, value) else f"takes {kind['text']}, not {described(value)}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def ignored_reason(name: str, value: Any) -> str:
    """Why a trial ignores an argument of the user's file whatever the axes; empty if it does not.
    It is about names and logs, which do not change the training, or of transformers 4."""
    if name in EXPORTED:
        return "a measurement needs none of it; files to train with keep it"
    if name == "report_to":
        return "off while it is measured; tune's train.py has it, recommend's by --report-to"
    if runner_reason(name) or name.startswith(_LOGGING):
        return "a measurement decides it; train.py takes it on its command line"
    fields = argument_names()
    if name not in FORMER.split() or fields is None or name in fields:
        return ""
    if value and name in _TODAY:
        return f"today it is written {_TODAY[name]}"
    return f"transformers {installed_version('transformers')} no longer has it"
