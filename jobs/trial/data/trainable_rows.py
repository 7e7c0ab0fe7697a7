"""The rows of a user's file that a model can learn from."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from jobs.spec import Task
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.row_lengths import arrow_lists


def trainable_rows(dataset: Any, task: Task, path: str, vocabulary: int | None) -> Any:
    """A ``datasets.Dataset`` without the rows that have no token to learn, with a warning.

    A batch of such rows alone, for example of empty lines, has no loss: it is 0/0, and after it
    every weight is not a number. ``vocabulary`` is the number of token ids of the model, if known.
    Raises ValueError if no row is left, or if a token id is outside the vocabulary.
    """
    if "input_ids" not in dataset.column_names:
        return dataset
    plain = dataset.with_format(None)
    _check_token_ids(plain, path, vocabulary)
    kept = _learnable(plain, task)
    if kept.all():
        return dataset
    if not kept.any():
        raise ValueError(f"no row of {path} has a token to learn")
    left_out = len(kept) - int(kept.sum())
    warnings.warn(
        f"{left_out} of {len(kept)} rows of {path} have no token to learn, and are left out",
        stacklevel=2,
    )
    return dataset.select(np.flatnonzero(kept))


def _learnable(dataset: Any, task: Task) -> np.ndarray:
    """Which rows have a token, and a token to learn."""
    # A causal language model predicts each token from those before it, so not the first one.
    begin = 1 if task == "causal-lm" else 0
    targets = _mask(dataset, "input_ids", begin)
    if "labels" in dataset.column_names and (labels := _mask(dataset, "labels", begin)).size:
        targets = labels
    learnable: np.ndarray = _mask(dataset, "input_ids", begin=0) & targets
    return learnable


def _check_token_ids(dataset: Any, path: str, vocabulary: int | None) -> None:
    """Raise ValueError for a token id that the model's table of embeddings does not have."""
    if vocabulary is None:
        return
    for _, values in arrow_lists(dataset, "input_ids"):
        if len(values) and not 0 <= values.min() <= values.max() < vocabulary:
            wrong = int(values.min() if values.min() < 0 else values.max())
            raise ValueError(
                f"{path} has the token id {wrong}, and the model has a vocabulary of "
                f"{vocabulary}: take the model's own tokenizer, or set model.config.vocab_size"
            )


def _mask(dataset: Any, column: str, begin: int) -> np.ndarray:
    """Which rows have a value to learn at or after the position ``begin`` of a column's lists.

    Empty if each row has one value, and no list.
    """
    masks = [np.empty(0, dtype=bool)]
    for lengths, values in arrow_lists(dataset, column):
        rows = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        counts = (np.arange(len(values)) - starts >= begin) & (values != IGNORED)
        mask = np.zeros(len(lengths), dtype=bool)
        mask[rows[counts]] = True
        masks.append(mask)
    return np.concatenate(masks)
