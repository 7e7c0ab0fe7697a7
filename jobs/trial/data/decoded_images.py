"""The user's own images as pixel values, made when a row is read."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jobs.spec import DatasetFile
from jobs.tasks import image_shape

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def pixel_rows(dataset: Any, file: DatasetFile, config: PretrainedConfig) -> Any:
    """Rows of ``images`` and ``labels`` with pixels of shape (channels, height, width) instead.
    ``file.tokenizer`` names an image processor; default: that of the checkpoint. With random
    weights, an image gets the model's own size, and values from -1 to 1. Raises ValueError for a
    folder without a processor."""
    name = file.tokenizer or getattr(config, "_name_or_path", "")
    make = _processor(name) if name else _Resized(*image_shape(config, None))

    def read(rows: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        images = [opened(own, file)[0] for own in rows.get("pixel_values", ())]
        return {**rows, "pixel_values": list(map(make, images))} if images else dict(rows)

    # Under the model's own name, because the Trainer removes columns that no model takes.
    dataset = dataset.select_columns(["images", "labels"])
    return dataset.rename_column("images", "pixel_values").with_transform(read)


class _Resized:
    def __init__(self, channels: int, height: int, width: int) -> None:
        self._channels, self._size = channels, (width, height)

    def __call__(self, image: Any) -> torch.Tensor:
        image = image.convert("L" if self._channels == 1 else "RGB").resize(self._size)
        pixels = np.atleast_3d(np.asarray(image, dtype=np.float32)) / 127.5 - 1
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _processor(name: str) -> Any:
    import transformers

    try:
        own = transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError):
        raise ValueError(
            f"{name} has no image processor (preprocessor_config.json): name one in "
            "data.file.tokenizer"
        ) from None
    return lambda image: own(image, return_tensors="pt")["pixel_values"][0]


def opened(images: Any, file: DatasetFile) -> list[Any]:
    """The images of a row as RGB images: one or several, opened, as bytes, or as local paths."""
    from PIL import Image

    found = []
    for image in images if isinstance(images, list) else filter(None, [images]):
        if isinstance(image, Mapping):
            # As datasets stores an image: its bytes, or where it lies.
            image = image.get("bytes") or image.get("path")
        if isinstance(image, bytes):
            image = Image.open(io.BytesIO(image))
        elif isinstance(image, (str, os.PathLike)):
            if "://" in str(image):
                raise ValueError(f"{file.path} names an image by a URL; images must be local files")
            image = Image.open(Path(file.path).parent / image)
        if not hasattr(image, "convert"):
            raise ValueError(f"{file.path} has a {type(image).__name__} where an image should be")
        found.append(image.convert("RGB"))
    return found
