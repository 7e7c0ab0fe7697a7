"""Builds a model without memory: counts its parameters, and asks whether it takes an adapter."""

import functools
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from jobs.errors import classify
from jobs.record import Outcome
from jobs.spec import Hook, ModelSpec
from jobs.techniques.hooks import registered


def count(model: ModelSpec) -> int:
    """A model's parameters; tied weights count once. Raises whatever transformers raises."""
    return sum(parameter.numel() for parameter in without_memory(model).parameters())


def without_memory(model: ModelSpec) -> Any:
    """The model on the meta device. Raises whatever transformers raises."""
    import torch

    from jobs.tasks import auto_class
    from jobs.trial.models import architecture_config

    config = architecture_config(model)
    if obstacle := wrong_task(model, config):
        raise ValueError(obstacle)
    # On the meta device a tensor has a shape and no storage.
    with torch.device("meta"):
        return auto_class(model.task, config).from_config(config, trust_remote_code=False)


def wrong_task(model: ModelSpec, config: Any) -> str:
    """Why transformers has no model of this type for the task, and which task has; empty if it has
    one, or if the checkpoint brings its own code."""
    from transformers import AutoModel

    from jobs.tasks import AUTO_CLASSES, auto_class

    kind = type(config)
    tasks = [task for task in AUTO_CLASSES if kind in auto_class(task, config)._model_mapping]
    if model.task in tasks or hasattr(config, "auto_map"):
        return ""
    every = ", ".join(AUTO_CLASSES)
    made_for = f"tasks for it: {', '.join(tasks)}" if tasks else f"no task is: {every}"
    if not tasks and kind in AutoModel._model_mapping:
        main_input = AutoModel._model_mapping[kind].main_input_name
        if main_input in ("input_features", "input_values", "audio_values"):
            made_for = f"it is a model of sound, which none of the tasks is: {every}"
    return f"{config.model_type} is not made for {model.task}; {made_for}"


def size_of(model: ModelSpec) -> dict[str, Any]:
    """The number of ``parameters``, or the ``mistake`` or other ``reason`` why there is none."""
    try:
        return {"parameters": count(model)}
    except Exception as error:
        is_mistake = isinstance(error, ValueError) or _is_about_a_value(error, model)
        # A model whose code needs real tensors cannot be counted, and may still train.
        return {"mistake" if is_mistake else "reason": _sentence(error)}


def _is_about_a_value(error: Exception, model: ModelSpec) -> bool:
    """Whether the given values make the model fail: at its defaults it is built without data."""
    if "meta" in str(error) or not model.config or model.name_or_path is not None:
        return False
    try:
        count(replace(model, config={}))
    except Exception:
        return False
    return True


def _sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"there is no {error}"  # transformers looks a name up in a table
    lines = list(filter(None, map(str.strip, str(error).splitlines())))
    # One line is not enough: huggingface_hub's errors name the field first and the reason below.
    return " ".join(lines[:3])[:300] or type(error).__name__


def refusal(model: ModelSpec, hooks: Sequence[Hook]) -> dict[str, Any]:
    """Why a change of a model is ``refused``; empty if it is not, or if nothing can be said. Or the
    ``reason`` why the model cannot be built, which another time it may be."""
    try:
        built = without_memory(model)
    except Exception as error:
        return {"reason": str(error)}
    try:
        for hook in hooks:
            change = functools.partial(registered(hook.name), **hook.arguments)
            built = change(built, model.task, SimpleNamespace())
    except Exception as error:
        outcome, _, reason = classify(error)
        # What needs real weights says so, and may be possible with them.
        is_refused = outcome is Outcome.UNSUPPORTED and "meta" not in reason
        return {"refused": reason if is_refused and "installed" not in reason else ""}
    return {"refused": ""}
