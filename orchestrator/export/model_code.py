"""Generates the code of train.py that makes the model and its configuration."""

from typing import Any

from jobs.spec import TrialSpec
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
    """The values that the template needs for ``model_config`` and ``make_model``."""
    model = spec.model
    is_checkpoint = model.name_or_path is not None
    # A named architecture has no code of its own. A checkpoint's runs only if the command line of
    # train.py allows it, because a run folder may come from a stranger.
    asks = bool(model.trust_remote_code) and is_checkpoint
    trust = Code(f"trust_remote_code={'options.trust_remote_code' if asks else False}")
    if is_checkpoint:
        of_config = [literal(model.name_or_path), trust]
        of_model = [literal(model.name_or_path), Code("config=config"), trust]
    else:
        of_config = [literal(model.architecture)]
        of_model = [Code("config"), trust]
    kwargs = {"dtype": "float32", **spec.settings.model_kwargs}
    kind = keyword_argument("dtype", dtype(kwargs.pop("dtype")))  # torch's object, no text
    return {
        "task": known(model.task, AUTO_CLASSES, "a task"),
        "auto_class": Code(AUTO_CLASSES[model.task]),
        "text_class": lifted(text_class),
        "is_checkpoint": is_checkpoint,
        "asks_for_remote_code": asks,
        "config_arguments": arguments([*of_config, *keywords(model.config)]),
        "model_arguments": arguments([*of_model, kind, *keywords(kwargs)]),
    }
