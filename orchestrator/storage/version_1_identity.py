"""The identities that version 1 of the tables gave to trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jobs.spec import TrialSpec, to_json
from jobs.techniques import AXES
from orchestrator.storage.migration import RENAMED_HOOKS


def version_1_id(spec: TrialSpec) -> str:
    """The identity that version 1 gave to a trial. It relates old tables to today's trials."""
    content: dict[str, Any] = {
        "choices": _version_1_choices(to_json(spec.choices)),
        "model": to_json(spec.model),
        "data": to_json(spec.data),
        "recipe": _version_1_recipe(to_json(spec.settings)),
        "measure": _version_1_measure(spec),
        "repeat": spec.repeat,
    }
    if spec.gpu_model:
        content["gpu_model"] = spec.gpu_model
    # Version 1 hashed the sorted JSON, and kept twelve hexadecimal digits of the hash.
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


_VERSION_1_AXES = (
    "micro_batch",
    "accumulation",
    "precision",
    "optimizer",
    "activations",
    "attention",
    "offload",
    "adapter",
    "compile",
    "dataloader",
    "loop",
)


def _version_1_choices(choices: Mapping[str, Any]) -> dict[str, Any]:
    """The choices without those on axes of techniques that version 1 did not have."""
    newer = AXES.keys() - set(_VERSION_1_AXES)
    return {axis: value for axis, value in choices.items() if axis not in newer}


def _version_1_recipe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Today's settings as version 1 had them, with hooks as module paths."""
    paths = {name: path for path, name in RENAMED_HOOKS.items()}
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
