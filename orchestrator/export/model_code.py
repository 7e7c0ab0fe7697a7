"""Generates the code of train.py that makes the model and its configuration.

Every value of a spec is checked before it becomes code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec import ModelSpec, TrialSpec
from jobs.tasks import AUTO_CLASSES, text_class
from orchestrator.export.generated_code import (
    Code,
    arguments,
    dtype,
    keyword_argument,
    keywords,
    known,
    literal,
)
from orchestrator.export.source_lifting import lifted


def model_code(spec: TrialSpec) -> dict[str, Any]:
    """The values that the template needs for ``model_config`` and ``make_model``.

    Raises NotExportableError if a value is not a plain literal.
    """
    model = spec.model
    task = known(model.task, AUTO_CLASSES, "a task")
    of_config = [*_config_source(model), *keywords(model.config)]
    of_model = [*_model_source(model), *_model_keywords(spec.settings.model_kwargs)]
    return {
        "auto_class": Code(AUTO_CLASSES[model.task]),
        "text_class": lifted(text_class),
        "task": task,
        "is_checkpoint": model.name_or_path is not None,
        "asks_for_remote_code": _asks_for_remote_code(model),
        "config_arguments": arguments(of_config),
        "model_arguments": arguments(of_model),
    }


def _config_source(model: ModelSpec) -> list[Code]:
    """Arguments that tell ``AutoConfig`` the checkpoint or the architecture."""
    if model.name_or_path is None:
        return [literal(model.architecture)]
    return [literal(model.name_or_path), _trust(model)]


def _model_source(model: ModelSpec) -> list[Code]:
    """Arguments that give the model its configuration and, if any, its checkpoint."""
    if model.name_or_path is None:
        return [Code("config"), _trust(model)]
    return [literal(model.name_or_path), Code("config=config"), _trust(model)]


def _asks_for_remote_code(model: ModelSpec) -> bool:
    """Whether the trial ran code of its checkpoint. A named architecture has no such code."""
    return bool(model.trust_remote_code) and model.name_or_path is not None


def _trust(model: ModelSpec) -> Code:
    """The argument ``trust_remote_code``.

    Only the command line of train.py can allow it, because a run folder may come from a stranger.
    """
    if _asks_for_remote_code(model):
        return Code("trust_remote_code=options.trust_remote_code")
    return keyword_argument("trust_remote_code", literal(False))


def _model_keywords(kwargs: Mapping[str, Any]) -> list[Code]:
    """Keyword arguments of ``from_config`` and ``from_pretrained``; the dtype is torch's object."""
    others = {key: value for key, value in kwargs.items() if key != "dtype"}
    return [keyword_argument("dtype", dtype(kwargs.get("dtype", "float32"))), *keywords(others)]
