"""Makes each library's settings from a trial's: TrainingArguments, DeepSpeed and accelerate."""

import dataclasses
import json
from typing import Any

from jobs.spec import TrialSpec, to_json
from orchestrator.export.generated_code import NotExportableError, check_plain
from orchestrator.export.trl_code import trl_arguments
from orchestrator.planning.choices.arguments import argument_names, older_name

DEEPSPEED_FILE = "deepspeed.json"
"""Name of DeepSpeed's configuration file in the exported folder."""


def with_batch(spec: TrialSpec, micro_batch: int, accumulation: int) -> TrialSpec:
    """The trial with another micro-batch and gradient accumulation."""
    arguments = {
        **spec.settings.training_arguments,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulation,
    }
    settings = dataclasses.replace(spec.settings, training_arguments=arguments)
    choices = {**spec.choices, "micro_batch": micro_batch, "accumulation": accumulation}
    return dataclasses.replace(spec, choices=choices, settings=settings)


def training_arguments(spec: TrialSpec, *, epochs: float) -> dict[str, Any]:
    """The trial's training arguments for ``epochs`` epochs, with evaluation and saving. Arguments
    that transformers 5.23 renamed have their older names, which all versions accept. Raises
    NotExportableError if ``TrainingArguments`` does not have an argument."""
    arguments = {
        **trl_arguments(spec),
        **_checked_arguments(spec),
        "output_dir": "output",
        "num_train_epochs": epochs,
        "seed": spec.measure.seed,
        "report_to": "none",
        "gradient_accumulation_steps": spec.accumulation,
        "per_device_eval_batch_size": _evaluation_batch(spec),
        # After every tenth of all steps.
        "eval_strategy": "steps",
        "eval_steps": 0.1,
        "save_strategy": "steps",
        "save_steps": 0.1,
        "save_total_limit": 2,
    }
    if not spec.needs.gpus:
        arguments["use_cpu"] = True
    if spec.settings.deepspeed is not None:
        arguments["deepspeed"] = DEEPSPEED_FILE
    check_plain(arguments)
    return arguments


def _evaluation_batch(spec: TrialSpec) -> int:
    """Rows of an evaluation's batch whose memory is known to fit where the training fits."""
    rows = spec.settings.training_arguments.get("per_device_eval_batch_size")
    if rows is not None:
        return int(rows)
    # The trial evaluated with the default of TrainingArguments, so that is known to fit.
    if spec.measure.evaluate_and_save:
        return 8
    # A fused loss never holds all logits of a micro-batch in training, but evaluation does.
    if "loss" in spec.settings.hooks:
        return 1
    # Without gradients, a micro-batch needs less memory than in training.
    return spec.micro_batch


def _checked_arguments(spec: TrialSpec) -> dict[str, Any]:
    # Without transformers on this machine, the names cannot be checked here. train.py checks them.
    names = argument_names()
    arguments = {}
    for name, value in to_json(spec.settings.training_arguments).items():
        if names is not None and name not in names:
            raise NotExportableError(f"TrainingArguments has no field {name!r}")
        arguments[older_name(name)] = value
    return arguments


def deepspeed(spec: TrialSpec) -> dict[str, Any] | None:
    """The DeepSpeed configuration with the NVMe folder filled in; None if the trial had none."""
    if spec.settings.deepspeed is None:
        return None
    # NVMe offload writes to a folder beside train.py if the sweep named none.
    path = json.dumps(spec.needs.nvme_path or "nvme")
    text = json.dumps(to_json(spec.settings.deepspeed))
    filled: dict[str, Any] = json.loads(text.replace('"{nvme}"', path))
    zero = filled.get("zero_optimization")
    if isinstance(zero, dict) and zero.get("stage") == 3:
        # Without this setting, a saved model would have no weights. A trial saves no model.
        zero.setdefault("stage3_gather_16bit_weights_on_model_save", True)
    check_plain(filled)
    return filled


def accelerate(spec: TrialSpec) -> dict[str, Any]:
    """The configuration for ``accelerate launch``: as many processes as were measured, on this
    machine. The Trainer itself sets FSDP up."""
    settings: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "MULTI_GPU" if spec.world_size > 1 else "NO",
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": 1,
        "num_processes": spec.world_size,
        "use_cpu": not spec.needs.gpus,
    }
    if spec.settings.deepspeed is None:
        return {**settings, "mixed_precision": _mixed_precision(spec)}
    # The DeepSpeed file sets the precision. Accelerate refuses a second setting of it.
    zero = spec.settings.deepspeed.get("zero_optimization") or {}
    deepspeed_file = {
        "deepspeed_config_file": DEEPSPEED_FILE,
        # Stage 3 partitions the weights, so DeepSpeed must be there when the model is built.
        "zero3_init_flag": zero.get("stage", 0) == 3,
    }
    return {**settings, "distributed_type": "DEEPSPEED", "deepspeed_config": deepspeed_file}


def _mixed_precision(spec: TrialSpec) -> str:
    """As accelerate names it."""
    asked = spec.settings.training_arguments
    return next((own for own in ("bf16", "fp16") if asked.get(own)), "no")
