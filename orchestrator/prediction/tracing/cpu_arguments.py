"""What a trial's Trainer asks: ``TrainingArguments`` without a GPU, and of a model."""

import inspect
import tempfile
import warnings
from dataclasses import replace
from typing import Any

import torch

from jobs.loops.trainer_arguments import training_arguments
from jobs.spec import TrialSpec

_GPU_ARGUMENTS = (
    "tf32",
    "bf16",
    "fp16",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "deepspeed",
    "fsdp",
    "fsdp_config",
)
"""Training arguments that a machine without a GPU refuses."""


def cpu_arguments(spec: TrialSpec) -> Any:
    """The trial's ``TrainingArguments``, without what only a GPU accepts."""
    given = spec.settings.training_arguments
    arguments = {name: given[name] for name in given if name not in _GPU_ARGUMENTS}
    plain = replace(spec, settings=replace(spec.settings, training_arguments=arguments))
    # A Trainer makes its output folder, and nothing is written into this one.
    folder = tempfile.gettempdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return training_arguments(plain, output_dir=folder, total_steps=3, deepspeed=None)


def accepts_loss_arguments(model: Any) -> bool:
    """The Trainer's own test: ``accepts_loss_kwargs``, else if ``forward`` takes any keyword."""
    # An adapter is around its model.
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    parameters = inspect.signature(inner.forward).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    declared = getattr(inner, "accepts_loss_kwargs", None)
    return takes_any if declared is None else bool(declared)


def autocast_dtype(spec: TrialSpec) -> torch.dtype | None:
    """What the trial's autocast computes products in; None if it has none."""
    arguments = spec.settings.training_arguments
    if arguments.get("bf16"):
        return torch.bfloat16
    if arguments.get("fp16"):
        return torch.float16
    return None
