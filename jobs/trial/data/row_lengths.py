"""The lengths of a dataset's rows, and the rows that take the most memory together."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.spec import SyntheticData

_SEQUENCES = ("input_ids", "input_values", "labels", "decoder_input_ids")
"""Columns that may hold a sequence per row, whose longest decides the shape of a batch."""
_PAIR = ("prompt", "chosen", "rejected")
"""The parts of a pair of answers, whose token ids have columns of their own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLengths:
    """How long the rows of a dataset are. Each batch is padded to its longest row."""

    by_column: Mapping[str, np.ndarray]
    """Column -> int64 tokens of each row, of shape (rows,)."""
    labels: np.ndarray | None = None
    """Positions of each row that are scored, (rows,), if the loss is of ``tile`` of these at a
    time; None: it is not."""
    tile: int = 0

    @property
    def sequences(self) -> tuple[np.ndarray, ...]:
        """Tokens of the sequences that a row adds to a batch: those of the first column."""
        return (next(iter(self.by_column.values())),)

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of the longest sequence of each row."""
        return np.max(self.sequences, axis=0)

    def worst_micro_batches(self, micro_batch: int, count: int) -> list[list[int]]:
        """The rows of the ``count`` micro-batches that take the most memory, the worst one last.
        The gradients of the micro-batches before it are in memory then."""
        order = self._longest_first()[: micro_batch * count]
        begins = range(0, len(order), micro_batch)
        return [order[begin : begin + micro_batch] for begin in reversed(begins)]

    def _longest_first(self) -> list[int]:
        """All rows, longest first, after the longest of each column, which sets a batch's shape."""
        columns = list(self.by_column.values())
        # Columns have equal weight: each length is a share of the column's longest.
        total = sum(lengths / max(1, lengths.max()) for lengths in columns)
        longest = [int(lengths.argmax()) for lengths in columns]
        # Stable: among equally long rows, the order of the file decides.
        others = np.argsort(-total, kind="stable").tolist()
        return list(dict.fromkeys([*longest, *others]))


class PairLengths(RowLengths):
    """How long the answers of pairs are, with their prompts. A batch has both answers of each."""

    __slots__ = ()

    @property
    def sequences(self) -> tuple[np.ndarray, ...]:
        """Tokens of the chosen answers and of the rejected ones, with their prompts."""
        return tuple(self.by_column.values())

    def _longest_first(self) -> list[int]:
        """All pairs: first by the longer answer, which decides the shape, then by both together."""
        total = np.sum(self.sequences, axis=0)
        # ``lexsort`` sorts by its last key first, and is stable.
        return [int(index) for index in np.lexsort((-total, -self.tokens))]


def ragged_lengths(dataset: Any) -> RowLengths | None:
    """The lengths of the rows of a ``datasets.Dataset``; None if all rows are equally long."""
    if "rejected_ids" in dataset.column_names:
        prompt, *answers = (_lengths(dataset, f"{name}_ids") for name in _PAIR)
        pairs = PairLengths(by_column=dict(zip(_PAIR[1:], prompt + np.stack(answers), strict=True)))
        return pairs if np.ptp(pairs.sequences) else None
    names = [name for name in _SEQUENCES if name in dataset.column_names]
    by_column = {name: lengths for name in names if (lengths := _lengths(dataset, name)).size}
    return RowLengths(by_column=by_column) if any(map(np.ptp, by_column.values())) else None


def _lengths(dataset: Any, column: str) -> np.ndarray:
    """The length of each row of a column, int64; empty if its values are no lists."""
    parts = [lengths for lengths, _ in arrow_lists(dataset, column)]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def arrow_lists(dataset: Any, column: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Lengths and values of a column's lists, some rows at a time; nothing without lists."""
    chosen = dataset.select_columns([column]).with_format("arrow")
    for table in chosen.iter(batch_size=10_000):
        for chunk in table[column].chunks:
            if not hasattr(chunk, "value_lengths"):
                return
            lengths = chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            yield lengths.astype(np.int64), chunk.flatten().to_numpy(zero_copy_only=False)


def random_lengths(
    spec: SyntheticData, count: int, rng: np.random.Generator, *, shortest: int = 1
) -> np.ndarray:
    """The tokens of ``count`` random rows, int64, from ``shortest`` to the sequence length."""
    wanted = spec.lengths
    drawn: np.ndarray
    if wanted is None:
        # Each position is kept with probability 1 - padding. A row's length is the number kept.
        drawn = rng.binomial(spec.sequence_length, 1 - spec.padding, count)
    elif wanted.distribution == "uniform":
        drawn = rng.uniform(1, 2 * wanted.mean, count)
    else:
        # The mean of a lognormal distribution is exp(mu + sigma² / 2), so mu follows from it.
        mu = np.log(wanted.mean) - wanted.sigma**2 / 2
        drawn = rng.lognormal(mu, wanted.sigma, count)
    # Longer rows are cut, as those of a data file are.
    return drawn.round().clip(shortest, spec.sequence_length).astype(np.int64)


def random_token_range(vocabulary: int) -> tuple[int, int]:
    """The lowest token id of random rows, and the first one above the highest. The Hugging Face
    guide takes 100 to 30000, which avoids BERT's special tokens."""
    highest = min(30_000, vocabulary)
    return min(100, highest // 2), highest
