"""Images with texts as the dataset of a trial: the user's own, or random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.finetuning.vision.processed_images import images_of_file
from jobs.finetuning.vision.random_images import ImageTexts, image_texts
from jobs.spec import DataSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_COUNTED_ROWS = 1_000
"""Rows of a user's data in which image tokens are counted."""


def images_with_texts(
    data: DataSpec, config: PretrainedConfig, *, samples: int | None, seed: int
) -> tuple[Any, Any]:
    """The dataset and its collator; arguments as for ``jobs.trial.data.load``.

    Raises ValueError, in one sentence, for an unsuitable file, or if no random images can be made.
    """
    if data.file is not None:
        return images_of_file(data.file, config)
    assert data.synthetic is not None
    return image_texts(data.synthetic, config, samples=samples, seed=seed)


def image_tokens(dataset: Any, config: PretrainedConfig) -> float:
    """Tokens of a sample that images replace, on average over the first rows of a dataset."""
    if isinstance(dataset, ImageTexts):
        return float(dataset.image_tokens)
    rows = dataset.select(range(min(len(dataset), _COUNTED_ROWS)))["input_ids"]
    return sum(list(row).count(config.image_token_id) for row in rows) / len(rows)
