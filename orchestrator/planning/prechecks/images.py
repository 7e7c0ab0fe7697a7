"""Random images of a vision-language model: is its family known, and is there room for a text?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobs.spec import SyntheticData, Task
from jobs.techniques.hooks import service
from orchestrator.planning.prechecks.lengths import sequence_lengths
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import KeyPath
from orchestrator.planning.settings import SweepConfig

TASK = "image-text-to-text"
_OTHER_INPUTS = {
    "imagegpt": "colours as tokens",
    "perceiver": "inputs of several kinds",
    "siglip2": "patches with their positions",
}
"""Model type -> what it takes where other models take an image."""


def image_problems(
    config: SweepConfig, configuration: ModelConfiguration
) -> Iterator[tuple[KeyPath, str]]:
    """The problems of random images: the path of a key, and a sentence."""
    data = config.data.synthetic
    if data is None:
        return
    if config.model.task != TASK:
        yield from _for_no_images(config.model.task, data, configuration)
        return
    if data.lengths is not None:
        at: KeyPath = ("data", "synthetic", "lengths")
        yield at, "random images with texts have one length; use padding, or your own data"
    if not configuration.model_type:
        return
    source = "architecture" if config.model.name_or_path is None else "name_or_path"
    try:
        service("family_of")(configuration.model_type)
    except ValueError as error:
        yield ("model", source), str(error)
        return
    yield from _layout_problems(config, data, configuration)


def _for_no_images(
    task: Task, data: SyntheticData, configuration: ModelConfiguration
) -> Iterator[tuple[KeyPath, str]]:
    """Problems of keys about images, for a task without texts beside images."""
    if data.images != 1:
        yield ("data", "synthetic", "images"), f"is for the task {TASK} only"
    classifies = task == "image-classification"
    if classifies and configuration.model_type in _OTHER_INPUTS:
        message = f"random images for {configuration.model_type} are not known: it takes "
        yield ("model", "architecture"), message + _OTHER_INPUTS[configuration.model_type]
    if data.image_size is None:
        return
    at = ("data", "synthetic", "image_size")
    own = configuration.value("image_size")
    if not classifies:
        yield at, f"is for the tasks image-classification and {TASK} only"
    elif own not in (None, data.image_size):
        yield at, f"the model takes images of {own} pixels; change model.config.image_size"


def _layout_problems(
    config: SweepConfig, data: SyntheticData, configuration: ModelConfiguration
) -> Iterator[tuple[KeyPath, str]]:
    """Problems of the image's size, and of samples that are too short for their images."""
    try:
        layout = _layout(data, configuration)
    except LookupError:
        return  # known only when the configuration is built
    except ValueError as error:
        yield ("data", "synthetic", "image_size"), str(error)
        return
    # A token of text comes first, and at least one comes last.
    needed = data.images * layout.tokens + 2
    for at, length in sequence_lengths(config):
        if length < needed:
            yield (
                at,
                f"is {length} tokens, and {data.images} × {layout.tokens} are of images: give "
                f"{needed} or more, or smaller images",
            )


def image_shapes(
    data: SyntheticData, configuration: ModelConfiguration, micro_batch: int
) -> dict[str, tuple[int, ...]]:
    """The shapes of a batch of random images with texts; empty if they are not known."""
    try:
        layout = _layout(data, configuration)
    except ValueError:
        return {}
    tokens = (micro_batch, data.sequence_length)
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("input_ids", "attention_mask", "labels"):
        shapes[name] = tokens
    family = service("family_of")(configuration.model_type)
    if family.type_ids:
        shapes[family.type_ids] = tokens
    shapes["pixel_values"] = _joined(layout, layout.pixel_values, data.images, micro_batch)
    for name, shape in layout.masks.items():
        shapes[name] = _joined(layout, shape, data.images, micro_batch)
    for name, values in layout.sizes.items():
        shapes[name] = (data.images * micro_batch, len(values))
    return shapes


def _layout(data: SyntheticData, configuration: ModelConfiguration) -> Any:
    """The ``ImageLayout`` of one random image. Raises ValueError if there is none.

    The error is also a LookupError if it is about a value that is not known from the text alone.
    """
    return service("layout_of")(configuration.model_type, configuration.value, data.image_size)


def _joined(layout: Any, shape: tuple[int, ...], images: int, micro_batch: int) -> tuple[int, ...]:
    """The shape of all images of a batch, from that of one image."""
    first = images * shape[0]
    if layout.is_stacked:
        return (micro_batch, first, *shape[1:])
    return (micro_batch * first, *shape[1:])
