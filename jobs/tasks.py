"""What each task means to transformers. The driver needs no torch for the names alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.spec import Task

AUTO_CLASSES: Mapping[Task, str] = {
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "image-text-to-text": "AutoModelForImageTextToText",
}
"""Task -> the transformers class that builds its model."""
SAMPLES: Mapping[Task, str] = {"image-text-to-text": "images_with_texts"}
"""Task -> the service that makes its dataset, where ``jobs.trial.data`` itself does not."""
IMAGE_TOKENS: Mapping[Task, str] = {"image-text-to-text": "image_tokens"}
"""Task -> the service that counts the tokens of a sample that are images."""


def auto_class(task: Task, config: Any) -> Any:
    """The Auto class of transformers for a task, which has ``from_config``."""
    import transformers

    if task == "causal-lm":
        return text_class(config)
    return getattr(transformers, AUTO_CLASSES[task])


def text_class(config: Any) -> Any:
    """The Auto class of a model that is trained on texts alone.

    Some vision-language architectures have no class without the vision tower, which computes
    nothing without images. They are built whole.
    """
    import transformers

    for_texts = transformers.AutoModelForCausalLM
    with_images = transformers.AutoModelForImageTextToText
    kind = type(config)
    # A checkpoint with code of its own is in neither table.
    if kind not in for_texts._model_mapping and kind in with_images._model_mapping:
        return with_images
    return for_texts


def image_shape(config: Any, image_size: int | None) -> tuple[int, int, int]:
    """Channels, height and width of an image for a model that classifies images.

    Convolutional networks take any size. Without ``image_size`` and a size of the model's, it is
    ImageNet's usual one.
    """
    vision = getattr(config, "vision_config", None)
    sizes = (getattr(part, "image_size", None) for part in (config, vision))
    size = image_size or next(filter(None, sizes), 224)
    channels = (getattr(part, "num_channels", None) for part in (config, vision))
    height, width = (size, size) if isinstance(size, int) else size
    return next(filter(None, channels), 3), height, width
