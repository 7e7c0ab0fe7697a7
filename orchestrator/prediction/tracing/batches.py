"""The batches that a prediction is about: of synthetic samples, or of a data file's rows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers

from jobs.spec import ModelSpec, TrialSpec
from jobs.techniques.hooks import bound
from jobs.trial import data, models


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchShapes:
    """The shapes that a forward pass gets."""

    tensors: Mapping[str, torch.Tensor]
    """Of which only shapes and data types count."""
    is_padded: bool
    """Whether rows are shorter than their batch, so that attention needs a mask."""

    def tokens(self, *, of_decoder: bool = False) -> int:
        """Length of the sequences that the model, or its decoder, reads; 0 for images."""
        names = ("decoder_input_ids", "labels") if of_decoder else ("input_ids",)
        tensors = (self.tensors[name] for name in names if name in self.tensors)
        return next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), 0)


def batches_of(spec: TrialSpec) -> tuple[_EqualBatches | _FileBatches, ModelSpec]:
    """The batches of a trial, and its model with as many classes as its data file has.

    Raises what reading the user's data file raises.
    """
    config = models.architecture_config(spec.model)
    synthetic = spec.data.synthetic
    if synthetic is None or synthetic.lengths is not None:
        return _batches_of_rows(spec, config)
    # One sample, for its names, shapes and dtypes.
    single = replace(spec.data, synthetic=replace(synthetic, samples=1))
    dataset, _ = data.load(single, spec.model.task, config, samples=1, seed=0)
    sample = dataset[0]
    if wrap := bound(spec, "collator"):
        batch = wrap(transformers.default_data_collator)([sample])
        sample = {name: tensor[0] for name, tensor in batch.items()}
    # A technique may leave out the mask. Padding is then treated like any token.
    is_padded = synthetic.padding > 0 and "attention_mask" in sample
    return _EqualBatches(sample, is_padded=is_padded), spec.model


def _batches_of_rows(spec: TrialSpec, config: Any) -> tuple[_FileBatches, ModelSpec]:
    rows, collate = data.load(
        spec.data, spec.model.task, config, samples=None, seed=spec.measure.seed
    )
    model = data.fitted(spec.model, rows, config_labels=config.num_labels or 0)
    collate = collate or transformers.default_data_collator
    if wrap := bound(spec, "collator"):
        collate = wrap(collate)
    return _FileBatches(rows, collate), model


class _EqualBatches:
    is_ragged = False
    """Whether batches of one size differ in length."""

    def __init__(self, sample: Mapping[str, Any], *, is_padded: bool) -> None:
        self._sample = {name: torch.as_tensor(value) for name, value in sample.items()}
        self._is_padded = is_padded

    def worst(self, samples: int) -> BatchShapes:
        """Any batch of this size."""
        tensors = {
            name: tensor.expand(samples, *tensor.shape) for name, tensor in self._sample.items()
        }
        return BatchShapes(tensors=tensors, is_padded=self._is_padded)

    def typical(self, samples: int) -> BatchShapes:
        """The same: all batches have one shape."""
        return self.worst(samples)


class _FileBatches:
    """Batches of a data file's rows, as the trial's own collator pads them."""

    def __init__(self, rows: Any, collate: data.Collator) -> None:
        if not len(rows):
            raise ValueError("the data file has no rows")
        self._rows = rows
        self._collate = collate
        self._lengths = data.ragged_lengths(rows)
        self.is_ragged = self._lengths is not None

    def worst(self, samples: int) -> BatchShapes:
        """The rows that a trial trains on when it measures the worst batch."""
        if self._lengths is None:
            return self._batch(range(min(samples, len(self._rows))))
        [rows] = self._lengths.worst_micro_batches(samples, 1)
        return self._batch(rows)

    def typical(self, samples: int) -> BatchShapes:
        """The rows of the random batch whose length is the median of many."""
        if self._lengths is None:
            return self.worst(samples)
        generator = random.Random(0)
        count = min(samples, len(self._rows))
        draws = [generator.sample(range(len(self._rows)), count) for _ in range(201)]
        draws.sort(key=self._positions)
        return self._batch(draws[len(draws) // 2])

    def _positions(self, rows: Sequence[int]) -> int:
        """Positions of a row of this batch, over all its sequences, each padded to the longest of
        its column."""
        assert self._lengths is not None
        return sum(int(own[list(rows)].max()) for own in self._lengths.by_column.values())

    def _batch(self, indices: Sequence[int]) -> BatchShapes:
        tensors = self._collate([self._rows[index] for index in indices])
        mask = tensors.get("attention_mask")
        return BatchShapes(tensors=tensors, is_padded=mask is not None and not bool(mask.all()))
