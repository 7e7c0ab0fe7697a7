"""The batches that a prediction is about: of synthetic samples, or of a data file's rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from jobs.spec import SyntheticData, TrialSpec
from jobs.trial import data

_SEQUENCES = ("input_ids", "labels", "decoder_input_ids")
"""Columns that hold a sequence in each row, whose longest decides the shape of a batch."""
_DRAWS = 201
"""Random batches of which the median length is the typical one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorShape:
    """A tensor of a batch, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The shapes that a forward pass gets."""

    tensors: Mapping[str, TensorShape]
    is_padded: bool
    """Whether rows are shorter than their batch, so that attention needs a mask."""

    def tokens(self, *, of_decoder: bool = False) -> int:
        """Length of the sequences that the model, or its decoder, reads; 0 for images."""
        names = ["input_ids"]
        if of_decoder:
            names = ["decoder_input_ids", "labels"]
        for name in names:
            tensor = self.tensors.get(name)
            if tensor is not None and len(tensor.shape) > 1:
                return tensor.shape[1]
        return 0


class Batches(Protocol):
    """Where the batches of a trial come from."""

    is_ragged: bool
    """Whether batches of one size differ in length."""

    def worst(self, samples: int) -> Batch:
        """The micro-batch that takes the most memory."""

    def typical(self, samples: int) -> Batch:
        """A micro-batch of median length."""


def batches_of(spec: TrialSpec, config: Any) -> Batches:
    """The batches of a trial whose model has this configuration.

    Raises what reading the user's data file raises.
    """
    synthetic = spec.data.synthetic
    if synthetic is not None:
        return _EqualBatches(_sample(spec, synthetic, config), is_padded=synthetic.padding > 0)
    rows, collate = data.load(spec.data, spec.model.task, config, samples=None, seed=0)
    return _FileBatches(rows, collate)


def _sample(spec: TrialSpec, synthetic: SyntheticData, config: Any) -> Mapping[str, Any]:
    """One synthetic sample, for its names, shapes and dtypes."""
    single = replace(spec.data, synthetic=replace(synthetic, samples=1))
    dataset, _ = data.load(single, spec.model.task, config, samples=1, seed=0)
    sample: Mapping[str, Any] = dataset[0]
    return sample


class _EqualBatches:
    """Batches of samples of one shape."""

    is_ragged = False

    def __init__(self, sample: Mapping[str, Any], *, is_padded: bool) -> None:
        self._sample = {name: torch.as_tensor(value) for name, value in sample.items()}
        self._is_padded = is_padded

    def worst(self, samples: int) -> Batch:
        """Any batch of this size."""
        tensors = {}
        for name, tensor in self._sample.items():
            tensors[name] = TensorShape(shape=(samples, *tensor.shape), dtype=tensor.dtype)
        return Batch(tensors=tensors, is_padded=self._is_padded)

    def typical(self, samples: int) -> Batch:
        """The same: all batches have one shape."""
        return self.worst(samples)


class _FileBatches:
    """Batches of a data file's rows, as the trial's own collator pads them."""

    def __init__(self, rows: Any, collate: data.Collator | None) -> None:
        if not len(rows):
            raise ValueError("the data file has no rows")
        self._rows = rows
        self._collate = collate
        self._lengths = _row_lengths(rows)
        self.is_ragged = any(len(set(lengths)) > 1 for lengths in self._lengths)

    def worst(self, samples: int) -> Batch:
        """The longest rows together."""
        return self._batch(self._longest_first()[:samples])

    def typical(self, samples: int) -> Batch:
        """The rows of the random batch whose length is the median of many."""
        generator = random.Random(0)
        count = min(samples, len(self._rows))
        draws = [generator.sample(range(len(self._rows)), count) for _ in range(_DRAWS)]
        draws.sort(key=self._positions)
        return self._batch(draws[_DRAWS // 2])

    def _longest_first(self) -> list[int]:
        """All rows in falling order of length, and first the rows with each column's longest.

        A batch is padded to the longest row of each column, whichever row that is in. So the rows
        with the longest input and with the longest target belong to the worst batch.
        """
        if not self._lengths:
            return list(range(len(self._rows)))
        longest = [lengths.index(max(lengths)) for lengths in self._lengths]
        # Columns count alike, however long their sequences are. The sort keeps equal rows in order.
        scales = [max(1, max(lengths)) for lengths in self._lengths]

        def share(row: int) -> float:
            """The row's length, as a share of the longest of each column."""
            pairs = zip(self._lengths, scales, strict=True)
            return sum(lengths[row] / scale for lengths, scale in pairs)

        others = sorted(range(len(self._rows)), key=share, reverse=True)
        return list(dict.fromkeys([*longest, *others]))

    def _positions(self, rows: Sequence[int]) -> int:
        """Positions of a row of the batch, over all its sequences."""
        return sum(max(lengths[row] for row in rows) for lengths in self._lengths)

    def _batch(self, indices: Sequence[int]) -> Batch:
        """These rows as the collator puts them together."""
        rows = [self._rows[index] for index in indices]
        tensors = self._collated(rows)
        shapes = {}
        for name, tensor in tensors.items():
            shapes[name] = TensorShape(shape=tuple(tensor.shape), dtype=tensor.dtype)
        mask = tensors.get("attention_mask")
        return Batch(tensors=shapes, is_padded=mask is not None and not bool(mask.all()))

    def _collated(self, rows: list[Any]) -> Mapping[str, torch.Tensor]:
        if self._collate is not None:
            return self._collate(rows)
        from transformers import default_data_collator

        collated: Mapping[str, torch.Tensor] = default_data_collator(rows)
        return collated


def _row_lengths(rows: Any) -> list[list[int]]:
    """For each column of sequences the length of each row; none for data without sequences."""
    lengths = []
    for name in _SEQUENCES:
        if name in rows.column_names:
            column = rows.with_format(None)[name]
            if isinstance(column[0], list):
                lengths.append([len(sequence) for sequence in column])
    return lengths
