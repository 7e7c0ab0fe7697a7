"""The rows of a user's file that a model can learn from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from jobs.spec import Task
from jobs.trial.data.collators import IGNORED

_READ_AT_ONCE = 10_000


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
    has_tokens = _mask(dataset, "input_ids", begin=0)
    # A causal language model predicts each token from those before it, so not the first one.
    begin = 1 if task == "causal-lm" else 0
    targets = "labels" if _is_listed(dataset, "labels") else "input_ids"
    has_targets = _mask(dataset, targets, begin)
    learnable: np.ndarray = has_tokens & has_targets
    return learnable


def _is_listed(dataset: Any, column: str) -> bool:
    """Whether each row has a list in a column, and not one value."""
    return column in dataset.column_names and any(True for _ in _lists(dataset, column))


def _check_token_ids(dataset: Any, path: str, vocabulary: int | None) -> None:
    """Raise ValueError for a token id that the model's table of embeddings does not have."""
    if vocabulary is None:
        return
    for _, values in _lists(dataset, "input_ids"):
        if len(values) and not 0 <= values.min() <= values.max() < vocabulary:
            wrong = int(values.min() if values.min() < 0 else values.max())
            raise ValueError(
                f"{path} has the token id {wrong}, and the model has a vocabulary of "
                f"{vocabulary}: take the model's own tokenizer, or set model.config.vocab_size"
            )


def _mask(dataset: Any, column: str, begin: int) -> np.ndarray:
    """Which rows have a value to learn at or after the position ``begin`` of a column's lists."""
    masks = []
    for lengths, values in _lists(dataset, column):
        rows = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        counts = (np.arange(len(values)) - starts >= begin) & (values != IGNORED)
        mask = np.zeros(len(lengths), dtype=bool)
        mask[rows[counts]] = True
        masks.append(mask)
    return np.concatenate(masks)


def _lists(dataset: Any, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Lengths of lists and all their values, for some rows at once; nothing for other columns."""
    chosen = dataset.select_columns([column]).with_format("arrow")
    for table in chosen.iter(batch_size=_READ_AT_ONCE):
        for chunk in table[column].chunks:
            if not hasattr(chunk, "value_lengths"):
                return  # numbers or texts
            lengths = chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            yield lengths.astype(np.int64), chunk.flatten().to_numpy(zero_copy_only=False)
