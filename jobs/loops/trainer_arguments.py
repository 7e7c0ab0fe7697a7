"""A trial's settings as the ``TrainingArguments`` of the installed transformers."""

import copy
import dataclasses
from typing import Any

import torch
from transformers import TrainingArguments

from jobs.spec import TrialSpec
from jobs.techniques.axes.activations import RENAMED
from jobs.techniques.hooks import bound, hook_name


def training_arguments(
    spec: TrialSpec, *, output_dir: str, total_steps: int | None, deepspeed: dict[str, Any] | None
) -> TrainingArguments:
    """The trial's arguments; ``total_steps`` None trains one epoch. The model needs them. Raises
    TypeError for an argument that the installed version does not have."""
    installed = {field.name for field in dataclasses.fields(TrainingArguments) if field.init}
    # A copy, because transformers adds its defaults to mappings such as ``fsdp_config``.
    given = copy.deepcopy(dict(spec.settings.training_arguments))
    arguments = {_installed_name(name, installed): value for name, value in given.items()}
    # What a measurement decides itself: no checkpoints, evaluations, progress bars or reports.
    arguments |= {
        "output_dir": output_dir,
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "log_level": "error",
        "use_cpu": not torch.cuda.is_available(),
        "seed": spec.measure.seed,
        "num_train_epochs": 1,  # if ``max_steps`` is -1
        "max_steps": -1 if total_steps is None else total_steps,
    }
    if deepspeed is not None:
        arguments["deepspeed"] = deepspeed
    make_arguments = bound(spec, "arguments")
    if make_arguments is None:
        return TrainingArguments(**arguments)
    return make_arguments(arguments, batching=hook_name(spec, "batching"))


def _installed_name(name: str, installed: set[str]) -> str:
    """An argument's newer or older name, whichever is installed; else the name itself."""
    newer: str = RENAMED.get(name, name)
    older = {new: old for old, new in RENAMED.items()}.get(name, name)
    return newer if newer in installed else older
