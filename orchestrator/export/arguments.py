"""A trial's recipe as the settings of each library: TrainingArguments, DeepSpeed's file, accelerate's file."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from jobs.spec import TrialSpec
from jobs.techniques.axes.activations import RENAMED

DEEPSPEED_FILE = "deepspeed.json"
NVME_FOLDER = "nvme"
"""Where NVMe offload writes when the sweep named no place: beside train.py."""


def with_accumulation(spec: TrialSpec, accumulation: int) -> TrialSpec:
    """The same trial at another gradient accumulation."""
    arguments = {**spec.recipe.training_arguments, "gradient_accumulation_steps": accumulation}
    return dataclasses.replace(
        spec,
        choices={**spec.choices, "accumulation": accumulation},
        recipe=dataclasses.replace(spec.recipe, training_arguments=arguments),
    )


def training_arguments(spec: TrialSpec, *, epochs: float) -> dict[str, Any]:
    """What the trial ran with, for ``epochs`` epochs: names that every supported transformers loads.

    Those that 5.23 renamed are written under their older name, which it still takes. Saving, evaluating and
    reporting are off, as they were in the trial.
    """
    older = {new: old for old, new in RENAMED.items()}
    arguments = {
        older.get(name, name): value for name, value in spec.recipe.training_arguments.items()
    }
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
    if spec.recipe.deepspeed is not None:
        arguments["deepspeed"] = DEEPSPEED_FILE
    return arguments


def deepspeed(spec: TrialSpec) -> dict[str, Any] | None:
    """DeepSpeed's own file with the NVMe folder filled in; None where the trial ran without DeepSpeed."""
    if spec.recipe.deepspeed is None:
        return None
    text = json.dumps(spec.recipe.deepspeed)
    filled: dict[str, Any] = json.loads(text.replace("{nvme}", spec.needs.nvme_path or NVME_FOLDER))
    return filled


def accelerate(spec: TrialSpec) -> dict[str, Any]:
    """The file for ``accelerate launch --config_file``: this machine, one process, as measured."""
    arguments = spec.recipe.training_arguments
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
    if spec.recipe.deepspeed is None:
        return settings | {
            "mixed_precision": next((p for p in ("bf16", "fp16") if arguments.get(p)), "no")
        }
    # Precision comes from DeepSpeed's own file: accelerate refuses to be told twice.
    stage = (spec.recipe.deepspeed.get("zero_optimization") or {}).get("stage", 0)
    own = {"deepspeed_config_file": DEEPSPEED_FILE, "zero3_init_flag": stage == 3}
    return settings | {"distributed_type": "DEEPSPEED", "deepspeed_config": own}
