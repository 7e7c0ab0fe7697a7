"""What a speech model takes for a sound: its shape, its room for a transcript, and its mask."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from jobs.spec import SyntheticData, Task

_Read = Callable[[str], Any]
"""The value of a key of a model's configuration."""
_VALUES_PER_SECOND = 16_000
"""Of the sound that the speech models of transformers are trained on."""
DEFAULT_SECONDS = 10.0
_FEATURES: Mapping[str, Callable[[_Read, float], tuple[int, ...]]] = {
    # Its encoder takes one length, of which two convolutions leave half.
    "whisper": lambda read, _: (read("num_mel_bins"), 2 * read("max_source_positions")),
    "speech_to_text": lambda read, seconds: (int(100 * seconds), read("input_feat_per_channel")),
    "wav2vec2-bert": lambda read, seconds: (
        int(50 * seconds),
        read("feature_projection_input_dim"),
    ),
}
"""Model type -> the shape of its ``input_features``."""
_VALUES = """
data2vec-audio hubert moonshine sew sew-d speecht5 unispeech unispeech-sat wav2vec2
wav2vec2-conformer wavlm
"""
"""Model types that take ``input_values``, which are the sound itself."""


def sound_shape(
    spec: SyntheticData, task: Task, model_type: str, read: _Read
) -> tuple[str, tuple[int, ...]]:
    """The model's input and its shape for one sample, whose transcript has the sequence length.
    Raises ValueError, in one sentence, for a model whose input is not known, and for a transcript
    of more tokens than the model can align with the sound."""
    seconds = spec.seconds or DEFAULT_SECONDS
    if make := _FEATURES.get(model_type):
        name, shape = "input_features", make(read, seconds)
    elif model_type in _VALUES.split():
        name, shape = "input_values", (int(_VALUES_PER_SECOND * seconds),)
    else:
        known = ", ".join([*_FEATURES, *_VALUES.split()])
        raise ValueError(f"random sounds for {model_type} are not known, only those for {known}")
    if task == "speech-ctc":
        frames = shape[0]
        if name == "input_values":
            frames = frames // math.prod(read("conv_stride")) - 1
        # Between two equal tokens the loss needs a frame of its own.
        needed = 2 * spec.sequence_length - 1
        if needed > frames:
            raise ValueError(
                f"{seconds:g} seconds are {frames} frames, and a transcript of "
                f"{spec.sequence_length} tokens may need {needed}: give more seconds, or a shorter "
                "sequence_length"
            )
    return name, shape


def masked_input(config: Any) -> str:
    """The input whose padding the model wants to know; empty if it takes no mask. Models that
    normalise groups of channels were trained on silence in place of padding."""
    if config.model_type in _VALUES.split():
        return "input_values" if getattr(config, "feat_extract_norm", "layer") == "layer" else ""
    return "" if config.model_type == "whisper" else "input_features"
