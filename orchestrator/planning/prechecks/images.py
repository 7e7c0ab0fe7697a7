"""Images: random ones, their family and their room for a text; damaged ones in a folder."""

import importlib.util
from pathlib import Path
from typing import Any

from jobs.spec import SyntheticData
from jobs.techniques.hooks import service
from orchestrator.planning.prechecks.data_file import SCANNED_BYTES
from orchestrator.planning.prechecks.lengths import sequence_lengths
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import KeyPath, KeyProblems
from orchestrator.planning.settings import SweepConfig

TASK = "image-text-to-text"
_OTHER_INPUTS = {
    "imagegpt": "colours as tokens",
    "perceiver": "inputs of several kinds",
    "siglip2": "patches with their positions",
}
"""Model type -> what it takes where other models take an image."""


def image_problems(config: SweepConfig, configuration: ModelConfiguration) -> KeyProblems:
    """The problems of random images: the path of a key, and a sentence."""
    data = config.data.synthetic
    if data is None:
        return
    if config.model.task == "image-classification":
        yield from _for_a_classifier(data, configuration)
    if config.model.task != TASK:
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


def _for_a_classifier(data: SyntheticData, configuration: ModelConfiguration) -> KeyProblems:
    if configuration.model_type in _OTHER_INPUTS:
        message = f"random images for {configuration.model_type} are not known: it takes "
        yield ("model", "architecture"), message + _OTHER_INPUTS[configuration.model_type]
    own = configuration.value("image_size")
    if data.image_size is not None and own not in (None, data.image_size):
        at = ("data", "synthetic", "image_size")
        yield at, f"the model takes images of {own} pixels; change model.config.image_size"


def _layout_problems(
    config: SweepConfig, data: SyntheticData, configuration: ModelConfiguration
) -> KeyProblems:
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


def _layout(data: SyntheticData, configuration: ModelConfiguration) -> Any:
    """The ``ImageLayout`` of one random image. Raises ValueError if there is none. The error is
    also a LookupError if it is about a value that is not known from the text alone."""
    return service("layout_of")(configuration.model_type, configuration.value, data.image_size)


def damaged_image(folder: Path) -> str:
    """A sentence about the first image of the training set that cannot be decoded; empty if there
    is none. Reads as many bytes as of a text file, the images in the order of their names."""
    if importlib.util.find_spec("PIL") is None:
        return ""
    from PIL import Image

    root = folder / "train" if (folder / "train").is_dir() else folder
    endings, read_bytes = Image.registered_extensions(), 0
    for path in sorted(path for path in root.rglob("*") if path.suffix.lower() in endings):
        # datasets leaves out hidden files, too.
        is_hidden = any(part.startswith((".", "__")) for part in path.relative_to(root).parts)
        if is_hidden or not path.is_file():
            continue
        read_bytes += path.stat().st_size
        if read_bytes > SCANNED_BYTES:
            break
        try:
            with Image.open(path) as image:
                # A JPEG is decoded at an eighth of its size, for which all of it is read.
                image.draft("RGB", (1, 1))
                image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return f"{path} cannot be decoded as an image; replace it, or remove it"
    return ""
