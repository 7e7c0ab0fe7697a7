"""A trial's settings as files of each library: TrainingArguments, DeepSpeed, accelerate."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jobs.spec import TrialSpec, to_json
from jobs.techniques.axes.activations import RENAMED

DEEPSPEED_FILE = "deepspeed.json"
"""Name of DeepSpeed's configuration file in the exported folder."""
NVME_FOLDER = "nvme"
"""Where NVMe offload writes if the sweep named no folder: beside train.py."""
_NVME_PLACEHOLDER = "{nvme}"
_ZERO_STAGE_OF_PARTITIONED_WEIGHTS = 3
"""From this ZeRO stage on, the model must be built in DeepSpeed's own context."""


def with_accumulation(spec: TrialSpec, accumulation: int) -> TrialSpec:
    """The same trial at another gradient accumulation."""
    arguments = {
        **spec.settings.training_arguments,
        "gradient_accumulation_steps": accumulation,
    }
    settings = dataclasses.replace(spec.settings, training_arguments=arguments)
    choices = {**spec.choices, "accumulation": accumulation}
    return dataclasses.replace(spec, choices=choices, settings=settings)


def training_arguments(spec: TrialSpec, *, epochs: float) -> dict[str, Any]:
    """The trial's arguments for ``epochs`` epochs, under names that every transformers loads.

    Arguments that 5.23 renamed have their older name, which it still takes. Saving, evaluating and
    reporting are off, as they were in the trial.
    """
    older_names = {new: old for old, new in RENAMED.items()}
    arguments = {}
    for name, value in to_json(spec.settings.training_arguments).items():
        arguments[older_names.get(name, name)] = value
    arguments |= {
        "output_dir": "output",
        "num_train_epochs": epochs,
        "seed": spec.measure.seed,
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
    }
    if not spec.needs.gpus:
        arguments["use_cpu"] = True
    if spec.settings.deepspeed is not None:
        arguments["deepspeed"] = DEEPSPEED_FILE
    return arguments


def deepspeed(spec: TrialSpec) -> dict[str, Any] | None:
    """DeepSpeed's file with the NVMe folder filled in; None where the trial ran without it."""
    if spec.settings.deepspeed is None:
        return None
    nvme_path = spec.needs.nvme_path or NVME_FOLDER
    filled: dict[str, Any] = _with_nvme_path(spec.settings.deepspeed, nvme_path)
    return filled


def _with_nvme_path(value: Any, nvme_path: str) -> Any:
    """A copy of a JSON value with the placeholder replaced in every text."""
    if isinstance(value, Mapping):
        return {key: _with_nvme_path(item, nvme_path) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_nvme_path(item, nvme_path) for item in value]
    if isinstance(value, str):
        return value.replace(_NVME_PLACEHOLDER, nvme_path)
    return value


def accelerate(spec: TrialSpec) -> dict[str, Any]:
    """The file for ``accelerate launch --config_file``: this machine, one process, as measured."""
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "NO",
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": 1,
        "use_cpu": not spec.needs.gpus,
    }
    if spec.settings.deepspeed is None:
        return {**settings, "mixed_precision": _mixed_precision(spec)}
    # DeepSpeed's file holds the precision. Accelerate refuses a second one.
    zero = spec.settings.deepspeed.get("zero_optimization") or {}
    is_partitioned = zero.get("stage", 0) == _ZERO_STAGE_OF_PARTITIONED_WEIGHTS
    deepspeed_file = {
        "deepspeed_config_file": DEEPSPEED_FILE,
        "zero3_init_flag": is_partitioned,
    }
    return {**settings, "distributed_type": "DEEPSPEED", "deepspeed_config": deepspeed_file}


def _mixed_precision(spec: TrialSpec) -> str:
    """The precision as accelerate names it."""
    for precision in ("bf16", "fp16"):
        if spec.settings.training_arguments.get(precision):
            return precision
    return "no"
