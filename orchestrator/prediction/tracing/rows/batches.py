"""The batches that a prediction is about: of synthetic samples, or of a data file's rows."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
import transformers

from jobs.library_facts.model_size import wrong_task
from jobs.spec import ModelSpec, TrialSpec
from jobs.techniques.hooks import bound
from jobs.trial import data, models
from jobs.trial.data import RowLengths
from orchestrator.prediction.streams.length_streams import Kind, Lengths
from orchestrator.prediction.unsupported import has_images


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchShapes:
    """The shapes that a forward pass gets."""

    tensors: Mapping[str, torch.Tensor]
    """Of which only shapes and data types count."""
    is_padded: bool
    """Whether attention needs a mask: rows are shorter than their batch, or share a sequence."""

    @property
    def real_tokens(self) -> int:
        """Positions that the mask does not leave out; 0: there is no mask."""
        mask = self.tensors.get("attention_mask")
        return 0 if mask is None else int(mask.sum())

    def tokens(self, *, of_decoder: bool = False) -> int:
        """Length of the sequences that the model, or its decoder, reads; 0 for images."""
        names = ("decoder_input_ids", "labels") if of_decoder else ("input_ids",)
        tensors = (self.tensors[name] for name in names if name in self.tensors)
        return next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), 0)


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides the memory of a micro-batch of rows of unequal length."""

    rows: int
    is_padded: bool
    """Whether some rows are shorter than the batch."""
    lengths: Lengths
    """Its positions along each of the distinct columns, and those that are scored, if the loss
    runs over tiles of these alone."""
    tiles: int = 0
    """Tiles of the loss; 0: it has none."""

    @property
    def kind(self) -> Kind:
        """Equal for shapes whose traces differ in sizes alone."""
        return self.rows, self.is_padded, self.tiles


def distinct_columns(lengths: RowLengths) -> dict[str, int]:
    """Each column, with the number that columns share whose lengths are equal in all rows."""
    numbers: dict[bytes, int] = {}
    columns = lengths.by_column.items()
    return {name: numbers.setdefault(own.tobytes(), len(numbers)) for name, own in columns}


def batches_of(spec: TrialSpec) -> tuple[Batches, ModelSpec]:
    """The batches of a trial, and its model with as many classes as its data file has.

    Raises what reading the user's data file raises, and ValueError for a model of another task.
    """
    config = models.architecture_config(spec.model)
    if obstacle := wrong_task(spec.model, config):
        raise ValueError(obstacle)
    synthetic = spec.data.synthetic
    has_collator = bound(spec, "batching") or has_images(spec)
    if synthetic is None or synthetic.lengths is not None or has_collator:
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


def _batches_of_rows(spec: TrialSpec, config: Any) -> tuple[FileBatches, ModelSpec]:
    rows, collate = data.load(
        spec.data, spec.model.task, config, samples=None, seed=spec.measure.seed
    )
    model = data.fitted(spec.model, rows, config_labels=config.num_labels or 0)
    collate = collate or transformers.default_data_collator
    if batch := bound(spec, "batching"):
        attention = str(spec.settings.model_kwargs.get("attn_implementation", ""))
        rows, collate = batch(rows, collate, attention=attention, tokens=spec.data.tokens)
    if wrap := bound(spec, "collator"):
        collate = wrap(collate)
    return (_LongestRows if has_images(spec) else FileBatches)(rows, collate), model


class _EqualBatches:
    lengths = None
    """Those of the rows; None if all are equally long."""
    joins_rows = False
    """Whether the rows of a batch are one sequence."""
    is_longest = False
    """Whether those of the longest rows stand for all, because rows cannot be cut to a length."""
    ragged: FileBatches | None = None
    """Those of rows of unequal length, whose longest may stand for all here."""
    samples_per_row = 1.0
    """More than one in blocks of packed rows."""

    def __init__(self, sample: Mapping[str, Any], *, is_padded: bool) -> None:
        self._sample = {name: torch.as_tensor(value) for name, value in sample.items()}
        self._is_padded = is_padded

    def worst(self, samples: int) -> BatchShapes:
        """Any batch of this size."""
        tensors = {
            name: tensor.expand(samples, *tensor.shape) for name, tensor in self._sample.items()
        }
        return BatchShapes(tensors=tensors, is_padded=self._is_padded)

    longest = worst

    def of_shape(self, shape: Shape) -> BatchShapes:
        """Any batch of as many rows."""
        return self.worst(shape.rows)

    def of_longest_rows(self) -> _EqualBatches:
        return self


class FileBatches:
    """Batches of a data file's rows, as the trial's own collator pads them."""

    is_longest = False

    def __init__(self, rows: Any, collate: data.Collator) -> None:
        if not len(rows):
            raise ValueError("the data file has no rows")
        self.samples_per_row = statistics.fmean(getattr(collate, "samples_of_rows", None) or [1])
        self._rows = rows
        self.collate = collate
        self.lengths = data.ragged_lengths(rows)
        self.joins_rows: bool = getattr(collate, "flattens_rows", False)
        self.ragged = self if self.lengths is not None else None
        self._shaped: dict[Shape, BatchShapes] = {}

    def worst(self, samples: int) -> BatchShapes:
        """The rows that a trial trains on when it measures the worst batch, or as long ones."""
        if self.lengths is None and self.ragged is not None:
            return self.ragged.longest(samples)
        if self.lengths is None:
            return self._batch(range(min(samples, len(self._rows))))
        [rows] = self.lengths.worst_micro_batches(samples, 1)
        return self._batch(rows)

    def longest(self, samples: int, together: float = 0.0) -> BatchShapes:
        """A batch of the longest row, and others that are a position shorter, so that they are
        padded as in a usual batch. Rows that are one sequence have the positions of ``together`` of
        the longest ones; 0: all are as long."""
        if self.lengths is None:
            return self.worst(samples)
        times = (together or samples) if self.joins_rows else 1
        numbers = distinct_columns(self.lengths)
        longest = {number: self.lengths.by_column[name].max() for name, number in numbers.items()}
        positions = tuple(max(1, round(times * int(own))) for own in longest.values())
        return self.of_shape(Shape(samples, not self.joins_rows, positions))

    def of_shape(self, shape: Shape) -> BatchShapes:
        """A batch of this shape, of rows whose tokens are cut or repeated."""
        if shape not in self._shaped:
            rows = [self._resized(own, shape) for own in range(shape.rows)]
            self._shaped[shape] = self._collated(rows)
        return self._shaped[shape]

    def of_longest_rows(self) -> Self:
        """Batches in which the longest of rows of unequal length stands for all."""
        longest = copy.copy(self)
        longest.lengths = None
        return longest

    def _resized(self, position: int, shape: Shape) -> dict[str, Any]:
        """A row of the batch: the first one is as long as the batch, others may be shorter."""
        assert self.lengths is not None
        row = dict(self._rows[position % len(self._rows)])
        numbers = distinct_columns(self.lengths)
        old = len(row[next(iter(numbers))])
        for name, value in row.items():
            # Every other sequence, such as a mask, is as long as the first column's.
            if name not in numbers and (not np.ndim(value) or len(value) != old):
                continue
            length = self._length(shape, position, numbers.get(name, 0))
            tokens = np.resize(np.asarray(value), length)
            row[name] = tokens.tolist() if isinstance(value, list) else torch.as_tensor(tokens)
        return row

    def _length(self, shape: Shape, position: int, column: int = 0) -> int:
        """Of a row of the batch."""
        length = shape.lengths[column]
        if self.joins_rows:
            length = (length + position) // shape.rows
        elif shape.is_padded and position > 0:
            length -= 1
        return max(1, length)

    def _batch(self, indices: Sequence[int]) -> BatchShapes:
        return self._collated([self._rows[index] for index in indices])

    def _collated(self, rows: list[Any]) -> BatchShapes:
        tensors = self.collate(rows)
        mask, positions = tensors.get("attention_mask"), tensors.get("position_ids")
        is_padded = mask is not None and not bool(mask.all())
        is_packed = positions is not None and bool((positions[:, 1:] == 0).any())
        return BatchShapes(tensors=tensors, is_padded=is_padded or is_packed)


class _LongestRows(FileBatches):
    """Texts with images, whose own processor decides how long they are."""

    def __init__(self, rows: Any, collate: data.Collator) -> None:
        super().__init__(rows, collate)
        self._unequal, self.lengths, self.ragged = self.lengths, None, None
        self.is_longest = self._unequal is not None

    def worst(self, samples: int) -> BatchShapes:
        if self._unequal is None:
            return super().worst(samples)
        [rows] = self._unequal.worst_micro_batches(samples, 1)
        return self._batch(rows)


Batches = _EqualBatches | FileBatches


_POSITION_NAMES = ("position_embedding", "embed_positions", "wpe", "position_ids_embedding")


def why_beyond(model: torch.nn.Module, batch: BatchShapes) -> str:
    """Why the model raises on a batch, if that is longer than a table of positions; else empty. A
    trace does not show this, because its tensors have no data. On a GPU, a device-side assertion
    ends the process."""
    config: Any = model.config
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        is_of_positions = any(part in last for part in _POSITION_NAMES)
        # Positions of an image's patches are not those of tokens.
        is_of_images = "vision" in name or "visual" in name
        if not isinstance(module, torch.nn.Embedding) or not is_of_positions or is_of_images:
            continue
        # The inputs of a decoder are the labels, shifted by one.
        of_decoder = bool(config.is_encoder_decoder) and "decoder" in name
        tokens = batch.tokens(of_decoder=of_decoder)
        positions = _usable_positions(module)
        if tokens > positions:
            return (
                f"it raises: sequences have {tokens} tokens, and the model has positions for "
                f"{positions} ({name})"
            )
    return ""


def _usable_positions(table: torch.nn.Embedding) -> int:
    # BART and OPT skip the first ``offset`` rows. RoBERTa begins after the padding token's.
    offset = getattr(table, "offset", None)
    if not isinstance(offset, int):
        offset = 0 if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - offset
