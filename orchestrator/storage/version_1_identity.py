"""The identity that version 1 gave to a trial, which relates its tables to today's trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.spec import TrialSpec, to_json
from jobs.techniques import AXES

HOOKS = {
    "jobs.loops.trainer:train": "trainer_loop",
    "jobs.loops.accelerate:train": "accelerate_loop",
    "jobs.techniques.adapter:lora": "lora",
    "jobs.techniques.attention:without_full_masks": "without_full_masks",
    "jobs.techniques.attention:only_kernel": "only_kernel",
    "jobs.techniques.compile:tuned_inductor": "tuned_inductor",
    "jobs.techniques.optimizer:torch_adamw": "torch_adamw",
    "jobs.techniques.optimizer:bitsandbytes_adam8bit": "bitsandbytes_adam8bit",
}
"""Module path of a hook in version 1 -> its name today."""
_VERSION_1_AXES = (
    *("micro_batch", "accumulation", "precision", "optimizer", "activations", "attention"),
    *("offload", "adapter", "compile", "dataloader", "loop"),
)
_VERSION_1_DATA = {
    "synthetic": ("sequence_length", "samples", "padding"),
    "file": ("path", "format", "columns", "tokenizer", "max_length"),
}


def version_1_id(spec: TrialSpec) -> str:
    """The identity that version 1 gave to a trial. It relates old tables to today's trials."""
    content: dict[str, Any] = {
        "choices": _version_1_choices(spec),
        "model": to_json(spec.model),
        "data": _version_1_data(to_json(spec.data)),
        "recipe": _version_1_recipe(to_json(spec.settings)),
        "measure": _version_1_measure(spec),
        "repeat": spec.repeat,
    }
    if spec.gpu_model:
        content["gpu_model"] = spec.gpu_model
    # Version 1 hashed the sorted JSON, and kept twelve hexadecimal digits of the hash.
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version_1_choices(spec: TrialSpec) -> dict[str, Any]:
    """The choices without those on axes that version 1 did not have."""
    added = set(AXES) - set(_VERSION_1_AXES)
    return {axis: value for axis, value in spec.choices.items() if axis not in added}


def _version_1_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data without the keys that version 1 did not have."""
    content = {}
    for source, fields in data.items():
        content[source] = fields
        if fields:
            content[source] = {name: fields[name] for name in _VERSION_1_DATA[source]}
    return content


def _version_1_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Today's settings as version 1 had them, with hooks as module paths."""
    paths = {name: path for path, name in HOOKS.items()}
    hooks = {}
    for place, hook in settings["hooks"].items():
        hooks[place] = [paths[hook["name"]], hook["arguments"]]
    return {
        "training_arguments": settings["training_arguments"],
        "deepspeed": settings["deepspeed"],
        "model_kwargs": settings["model_kwargs"],
        "hooks": hooks,
        "requires": settings["requires"],
        "prepares": settings["builds"],
    }


def _version_1_measure(spec: TrialSpec) -> dict[str, Any]:
    measure = to_json(spec.measure)
    names = ("warmup_steps", "steps", "relative_error", "seed", "inspect", "isolation")
    content = {name: measure[name] for name in names}
    if spec.measure.profile:
        content["anatomy"] = True
    return content
