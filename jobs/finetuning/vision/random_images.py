"""Random images with random texts, as the processor and the collator of a family make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from jobs.finetuning.vision.image_layouts import ImageLayout, family_of, layout_of
from jobs.spec import SyntheticData
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.row_lengths import random_lengths, random_token_range

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def image_texts(
    spec: SyntheticData, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[ImageTexts, Callable[[list[Any]], dict[str, torch.Tensor]]]:
    """A dataset of at least ``samples`` random samples, and its collator. Raises ValueError if the
    family's images are not known, or if a sample has no room for them."""
    if spec.lengths is not None:
        raise ValueError(
            "random images with texts have one length: use padding instead of lengths, or your "
            "own data"
        )

    def read(key: str) -> Any:
        value: Any = config
        for name in key.split("."):
            value = getattr(value, name, None)
        return value

    layout = layout_of(config.model_type, read, spec.image_size)
    rng = np.random.default_rng(seed)
    columns = _columns(spec, config, layout, max(spec.samples, samples or 0), rng)
    joined = () if layout.is_stacked else ("pixel_values", *layout.masks, *layout.sizes)

    def collate(rows: list[Any]) -> dict[str, torch.Tensor]:
        """Name -> tensor of shape (rows, ...), or (all images, ...) for those in ``joined``."""
        return {
            name: (torch.cat if name in joined else torch.stack)([row[name] for row in rows])
            for name in rows[0]
        }

    return ImageTexts(columns, layout, spec.images, rng), collate


class ImageTexts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples of token ids, labels and masks, each (tokens,), and the pixels of their images."""

    column_names = ()
    """None has lists, whose lengths could differ."""

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        layout: ImageLayout,
        images: int,
        rng: np.random.Generator,
    ) -> None:
        self._columns = {name: torch.from_numpy(column) for name, column in columns.items()}
        self.image_tokens = images * layout.image_tokens  # tokens of a sample that images replace
        # Pixels are normalised: about zero mean and unit variance in each channel.
        shape = (images * layout.pixel_values[0], *layout.pixel_values[1:])
        # Distinct images take at most 64 MiB of host memory. Other samples repeat them.
        distinct = 64 * 2**20 // (4 * int(np.prod(shape)))
        count = min(len(self), max(1, distinct))
        self._pool = torch.from_numpy(rng.standard_normal((count, *shape), dtype=np.float32))
        self._beside: dict[str, torch.Tensor] = {}  # the same for all samples
        for name, size in layout.masks.items():
            self._beside[name] = torch.ones((images * size[0], *size[1:]), dtype=torch.int64)
        for name, values in layout.sizes.items():
            self._beside[name] = torch.tensor([values] * images)

    def __len__(self) -> int:
        return len(self._columns["input_ids"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        sample = {name: column[index] for name, column in self._columns.items()}
        return {**sample, "pixel_values": self._pool[index % len(self._pool)], **self._beside}


def _columns(
    spec: SyntheticData,
    config: PretrainedConfig,
    layout: ImageLayout,
    count: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Columns of shape (count, sequence_length), int64."""
    tokens = spec.sequence_length
    is_image = _image_positions(layout, spec.images, tokens, config.model_type)
    ids = _token_ids(config, is_image, count, rng)
    after_images = int(np.flatnonzero(is_image)[-1]) + 1 + layout.text_after
    # Images are never padding, and each sample has a token of text after them.
    lengths = _padded_lengths(spec, count, rng, after_images + 1) if spec.padding else [[tokens]]
    positions = np.arange(tokens)
    is_real = np.broadcast_to(positions < lengths, ids.shape)
    # The embeddings are the text model's, and so is the padding token.
    ids = np.where(is_real, ids, config.get_text_config().pad_token_id or 0)
    is_learnt = is_real & ~is_image
    family = family_of(config.model_type)
    if family.marks_answers:
        # The model reads images and prompt at once, and learns only what follows them.
        is_learnt &= positions >= after_images
    columns = {
        "input_ids": ids,
        "attention_mask": is_real.astype(np.int64),
        "labels": np.where(is_learnt, ids, IGNORED),
    }
    if family.type_ids:
        marked = is_learnt if family.marks_answers else np.broadcast_to(is_image, ids.shape)
        columns[family.type_ids] = marked.astype(np.int64)
    return columns


def _padded_lengths(
    spec: SyntheticData, count: int, rng: np.random.Generator, shortest: int
) -> np.ndarray:
    """Random lengths from ``shortest`` on, of shape (count, 1). ValueError: less room is left."""
    most = 1 - shortest / spec.sequence_length
    if spec.padding > most:
        raise ValueError(
            f"padding {spec.padding:g} of {spec.sequence_length} tokens leaves no room for the "
            f"images and a text, which take {shortest}: give at most {most:.2g}, or longer samples"
        )
    return random_lengths(spec, count, rng, shortest=shortest)[:, None]


def _image_positions(layout: ImageLayout, images: int, tokens: int, family: str) -> np.ndarray:
    """Which positions of a sample hold image tokens, bool of shape (tokens,). A token of text comes
    first, and at least one comes last."""
    is_image = [False]
    for _ in range(images):
        for text, image in layout.pieces:
            is_image += [False] * text + [True] * image
        is_image += [False] * layout.text_after
    if len(is_image) >= tokens:
        shape = "×".join(map(str, layout.pixel_values))
        raise ValueError(
            f"a sample of {tokens} tokens has no room for its images and a text: {images} of shape "
            f"{shape} take {len(is_image) - 1} tokens of {family}, so give it {len(is_image) + 1} "
            "or more"
        )
    return np.array(is_image + [False] * (tokens - len(is_image)))


def _token_ids(
    config: PretrainedConfig, is_image: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Random token ids, int64, with a token for images or videos only at the positions of images.
    Raises ValueError if no embedding has the image token."""
    vocabulary = config.get_text_config().vocab_size
    image_token: int = config.image_token_id
    if image_token >= vocabulary:
        name = config.attribute_map.get("image_token_id", "image_token_id")
        raise ValueError(
            f"the image token {image_token} is beyond the vocabulary of {vocabulary}: set "
            f"model.config.{name} to a smaller number"
        )
    special = {image_token, getattr(config, "video_token_id", None)}
    lowest, highest = random_token_range(vocabulary)
    ids = rng.integers(lowest, highest, (count, len(is_image)), dtype=np.int64)
    plain = next(number for number in range(lowest, highest) if number not in special)
    is_special = np.isin(ids, [number for number in special if number is not None])
    return np.where(is_image, image_token, np.where(is_special, plain, ids))
