"""The lengths of a dataset's rows, and the rows that take the most memory together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobs.spec import SyntheticData

_SEQUENCES = ("input_ids", "labels", "decoder_input_ids")
"""Columns that may hold a sequence per row, whose longest decides the shape of a batch."""
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLengths:
    """How long the rows of a dataset are. Each batch is padded to its longest row."""

    by_column: Mapping[str, np.ndarray]
    """Column -> int64 tokens of each row, of shape (rows,)."""

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of each row in the first column, which is ``input_ids`` if there is one."""
        return next(iter(self.by_column.values()))

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a row."""
        return float(self.tokens.mean())

    def worst_micro_batches(self, micro_batch: int, count: int) -> list[list[int]]:
        """The rows of the ``count`` micro-batches that take the most memory, the worst one last.

        The worst one is last, because the gradients of the micro-batches before it are in memory
        then. A dataset with fewer rows gives fewer micro-batches.
        """
        order = self._longest_first()
        chunks = []
        for begin in range(0, min(len(order), micro_batch * count), micro_batch):
            chunks.append(order[begin : begin + micro_batch])
        return chunks[::-1]

    def _longest_first(self) -> list[int]:
        """All rows, longest first. In front is the longest row of each column.

        A batch is padded to the longest row of each column, whichever row that is in. So a row with
        the longest target belongs in the worst batch, even if its input is short.
        """
        total = np.zeros(len(self.tokens))
        for lengths in self.by_column.values():
            # Columns have equal weight: each length is a share of the column's longest.
            total += lengths / max(1, lengths.max())
        longest = [int(lengths.argmax()) for lengths in self.by_column.values()]
        # Stable: among equally long rows, the order of the file decides.
        others = np.argsort(-total, kind="stable").tolist()
        return list(dict.fromkeys([*longest, *others]))

    def padding_share(self, batches: Iterable[Sequence[int]]) -> float:
        """The share of positions that are padding in these batches of rows; 0 without batches."""
        tokens = 0
        positions = 0
        for rows in batches:
            # A dataset may be repeated to last for all steps. Row numbers then go on increasing.
            lengths = self.tokens[np.asarray(rows) % len(self.tokens)]
            tokens += int(lengths.sum())
            # Every row of a batch takes as many positions as the longest one.
            positions += len(lengths) * int(lengths.max())
        if positions == 0:
            return 0.0
        return 1 - tokens / positions


class PairLengths(RowLengths):
    """How long the answers of pairs are, each with its prompt.

    A batch has the chosen answers of its pairs and then the rejected ones. It is padded to the
    longest of all.
    """

    __slots__ = ()

    @property
    def tokens(self) -> np.ndarray:
        """Tokens of the longer answer of each pair, with its prompt."""
        chosen, rejected = self.by_column.values()
        longer: np.ndarray = np.maximum(chosen, rejected)
        return longer

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of an answer with its prompt."""
        return float(np.mean(list(self.by_column.values())))

    def _longest_first(self) -> list[int]:
        """All pairs: first by the longer answer, which decides the shape, then by both together."""
        total = np.sum(list(self.by_column.values()), axis=0)
        # ``lexsort`` sorts by its last key first, and is stable.
        return [int(index) for index in np.lexsort((-total, -self.tokens))]

    def padding_share(self, batches: Iterable[Sequence[int]]) -> float:
        """The share of positions that are padding in these batches of pairs; 0 without batches."""
        tokens = 0
        positions = 0
        for pairs in batches:
            indices = np.asarray(pairs) % len(self.tokens)
            tokens += sum(int(lengths[indices].sum()) for lengths in self.by_column.values())
            # Both answers of every pair take as many positions as the longest answer.
            positions += 2 * len(indices) * int(self.tokens[indices].max())
        if positions == 0:
            return 0.0
        return 1 - tokens / positions


def ragged_lengths(dataset: Any) -> RowLengths | None:
    """The lengths of the rows of a ``datasets.Dataset``; None if all rows are equally long."""
    if "rejected_ids" in dataset.column_names:
        return _pair_lengths(dataset)
    by_column = {}
    for name in _SEQUENCES:
        if name in dataset.column_names:
            lengths = _lengths(dataset, name)
            if lengths is not None:
                by_column[name] = lengths
    is_ragged = any(lengths.min() < lengths.max() for lengths in by_column.values())
    return RowLengths(by_column=by_column) if is_ragged else None


def _pair_lengths(dataset: Any) -> PairLengths | None:
    """The lengths of the answers with their prompts; None if all are equally long."""
    columns = {}
    for name in ("prompt_ids", "chosen_ids", "rejected_ids"):
        lengths = _lengths(dataset, name)
        assert lengths is not None
        columns[name] = lengths
    chosen = columns["prompt_ids"] + columns["chosen_ids"]
    rejected = columns["prompt_ids"] + columns["rejected_ids"]
    shortest = min(chosen.min(), rejected.min())
    if shortest == max(chosen.max(), rejected.max()):
        return None
    return PairLengths(by_column={"chosen": chosen, "rejected": rejected})


def _lengths(dataset: Any, column: str) -> np.ndarray | None:
    """The length of each row of a column; None if its values are no lists."""
    parts = list(_lengths_of_chunks(dataset.select_columns([column]), column))
    if not parts:
        return None
    return np.concatenate(parts).astype(np.int64)


def _lengths_of_chunks(dataset: Any, column: str) -> Iterator[np.ndarray]:
    """The lengths of the lists of a column, read without turning any list into Python objects."""
    for table in dataset.with_format("arrow").iter(batch_size=_ROWS_AT_ONCE):
        for chunk in table[column].chunks:
            if not hasattr(chunk, "value_lengths"):
                return  # numbers or texts
            yield chunk.value_lengths().to_numpy(zero_copy_only=False)


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
    lengths: np.ndarray = drawn.round().clip(shortest, spec.sequence_length).astype(np.int64)
    return lengths


def random_token_range(vocabulary: int) -> tuple[int, int]:
    """The lowest token id of random rows, and the first one above the highest.

    The Hugging Face guide draws them from 100 to 30000, which avoids BERT's special tokens. A small
    vocabulary has less to draw from.
    """
    highest = min(30_000, vocabulary)
    return min(100, highest // 2), highest
