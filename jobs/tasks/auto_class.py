"""Which class of transformers builds the model of a task, for a configuration."""

from __future__ import annotations

from typing import Any

from jobs.spec import Task
from jobs.tasks import AUTO_CLASSES


def auto_class(task: Task, config: Any) -> Any:
    """The Auto class of transformers for a task, which has ``from_config``."""
    import transformers

    if task == "causal-lm":
        return text_class(config)
    return getattr(transformers, AUTO_CLASSES[task])


def text_class(config: Any) -> Any:
    """The Auto class of a model that is trained on texts alone.

    Some vision-language architectures have no class without the vision tower. Such a model is built
    whole. Without images its tower computes nothing.
    """
    import transformers

    for_texts = transformers.AutoModelForCausalLM
    with_images = transformers.AutoModelForImageTextToText
    kind = type(config)
    # A checkpoint with code of its own is in neither table.
    if kind not in for_texts._model_mapping and kind in with_images._model_mapping:
        return with_images
    return for_texts
