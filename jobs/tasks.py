"""What each task means to transformers. The driver needs no torch for the names alone."""

from collections.abc import Mapping, Sequence
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
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
    "speech-ctc": "AutoModelForCTC",
}
"""Task -> the transformers class that builds its model."""
SPEECH: Sequence[Task] = ("speech-seq2seq", "speech-ctc")
"""Tasks whose input is a sound, and whose labels are the tokens of its transcript."""
OTHER_INPUTS: Mapping[Task, str] = {
    "image-classification": "an image",
    **dict.fromkeys(SPEECH, "a sound"),
}
"""Task whose input is no text -> what it is."""
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
    """The Auto class of a model of texts; a vision-language class where there is no other."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    kind = type(config)
    # A checkpoint with code of its own is in neither table.
    is_whole = kind in AutoModelForImageTextToText._model_mapping
    if is_whole and kind not in AutoModelForCausalLM._model_mapping:
        return AutoModelForImageTextToText
    return AutoModelForCausalLM


def image_shape(config: Any, image_size: int | None) -> tuple[int, int, int]:
    """Channels, height and width of an image; ImageNet's usual size for networks that take any."""

    def declared(name: str, default: int) -> Any:
        parts = (config, getattr(config, "vision_config", None))
        return next(filter(None, (getattr(part, name, None) for part in parts)), default)

    size = image_size or declared("image_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    return declared("num_channels", 3), height, width
