"""A recipe as ``TrainingArguments`` of the installed transformers, whichever end of the supported range that is."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from transformers import TrainingArguments

from jobs.spec import TrialSpec
from jobs.techniques.axes.activations import RENAMED


def training_arguments(
    spec: TrialSpec, *, output_dir: str, total_steps: int | None, deepspeed: dict[str, Any] | None
) -> TrainingArguments:
    """The trial's arguments; None as ``total_steps`` trains one epoch.

    Creating them initialises DeepSpeed's process group where ``deepspeed`` is given, which must therefore happen
    before the model is built. Raises TypeError for an argument that the installed version does not have.
    """
    known = {f.name for f in dataclasses.fields(TrainingArguments) if f.init}
    arguments = {
        _installed_name(name, known): value
        for name, value in spec.settings.training_arguments.items()
    }
    arguments |= {
        "output_dir": output_dir,
        "report_to": "none",
        "save_strategy": "no",
        "eval_strategy": "no",
        "disable_tqdm": True,
        "log_level": "error",
        "use_cpu": not torch.cuda.is_available(),
        "seed": spec.measure.seed,
        "num_train_epochs": 1,
        "max_steps": total_steps if total_steps is not None else -1,
    }
    if deepspeed is not None:
        arguments["deepspeed"] = deepspeed
    return TrainingArguments(**arguments)


def _installed_name(name: str, known: set[str]) -> str:
    newer: str = RENAMED.get(name, name)
    if newer in known:
        return newer
    older = {new: old for old, new in RENAMED.items()}.get(name, name)
    return older if older in known else name
