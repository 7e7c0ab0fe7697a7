"""Which columns of a file a task can train on; anything else is refused in one sentence."""

from collections.abc import Collection, Mapping
from typing import Literal

from jobs.spec import Task

Source = Literal[
    "input_ids",
    "text",
    "messages",
    "prompt",
    "pixel_values",
    "images",
    "input_features",
    "input_values",
]
"""What the model's inputs are made from, by the name of its column."""

_SOUND: Mapping[Source, tuple[str, ...]] = {
    "input_features": ("input_features", "labels"),
    "input_values": ("input_values", "labels"),
}
NUMBERS = ("pixel_values", "input_features", "input_values")
"""Columns of a model's inputs that are no tokens."""
_SOURCES: Mapping[Task, Mapping[Source, tuple[str, ...]]] = {
    "sequence-classification": {"input_ids": ("input_ids", "labels"), "text": ("text", "labels")},
    "token-classification": {"input_ids": ("input_ids", "labels"), "text": ("text", "labels")},
    "causal-lm": {
        "input_ids": ("input_ids",),
        "messages": ("messages",),
        "prompt": ("prompt", "completion"),
        "text": ("text",),
    },
    "masked-lm": {"input_ids": ("input_ids", "labels"), "text": ("text",)},
    "seq2seq-lm": {
        "input_ids": ("input_ids", "labels"),
        "text": ("text", "target"),
        "prompt": ("prompt", "completion"),
    },
    "image-classification": {
        "pixel_values": ("pixel_values", "labels"),
        "images": ("images", "labels"),
    },
    "image-text-to-text": {
        "messages": ("messages", "images"),
        "prompt": ("prompt", "completion", "images"),
        "text": ("text", "images"),
    },
    "speech-seq2seq": _SOUND,
    "speech-ctc": _SOUND,
}
"""Task -> the columns that it trains on, in the order in which they are looked for."""

OTHER_NAMES = {"label": "labels", "label_ids": "labels", "image": "images"}
"""Other names of columns -> ours. Data sets and collators of transformers use them."""


def source_of(task: Task, columns: Collection[str]) -> Source | None:
    """The column that the task's inputs are made from; None if the task cannot train on these."""
    for source, needed in _SOURCES[task].items():
        if set(needed) <= set(columns):
            return source
    return None


def refusal(path: str, task: Task, columns: Collection[str]) -> str:
    """The sentence about a file that a task cannot train on."""
    *others, last = [" with ".join(needed) for needed in _SOURCES[task].values()]
    listed = f"{', '.join(others)}, or {last}" if others else last
    return (
        f"{path} has the columns {', '.join(columns)}, and {task} trains on {listed}: name yours "
        "in data.file.columns"
    )
