"""The batches that a prediction is about."""

from typing import Any

import torch
from datasets import Dataset

from orchestrator.prediction.tracing.rows.batches import FileBatches, Shape


def _padded(rows: list[Any]) -> dict[str, torch.Tensor]:
    """A collator that pads to the longest row."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        mask[number, : len(row["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask}


class _Joining:
    """A collator that makes all rows one sequence."""

    flattens_rows = True

    def __call__(self, rows: list[Any]) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[own for row in rows for own in row["input_ids"]]])}


def _batches(*lengths: int) -> FileBatches:
    return FileBatches(Dataset.from_dict({"input_ids": [[5] * n for n in lengths]}), _padded)


def test_worst_batch_is_of_the_longest_rows_together():
    batches = _batches(*[30] * 97, 500, 480, 500)
    assert batches.worst(2).tensors["input_ids"].shape == (2, 500)
    assert not batches.worst(2).is_padded
    assert batches.worst(4).is_padded


def test_batch_of_a_shape_is_that_of_such_rows():
    batch = _batches(30, 500).of_shape(Shape(rows=3, is_padded=True, lengths=(70,)))
    assert batch.tensors["input_ids"].shape == (3, 70)
    assert batch.is_padded
    full = _batches(30, 500).of_shape(Shape(rows=2, is_padded=False, lengths=(70,)))
    assert not full.is_padded


def test_longest_rows_stand_for_all_in_the_way_that_they_are_batched():
    padded = _batches(30, 500).of_longest_rows()
    assert padded.lengths is None
    assert padded.worst(3).tensors["input_ids"].shape == (3, 500)
    assert padded.worst(3).is_padded
    assert not padded.worst(1).is_padded
    joined = FileBatches(Dataset.from_dict({"input_ids": [[5] * 30, [5] * 500]}), _Joining())
    assert joined.of_longest_rows().worst(3).tensors["input_ids"].shape == (1, 1500)


def test_batch_of_more_samples_than_rows_has_all_rows():
    assert _batches(10, 20).worst(8).tensors["input_ids"].shape == (2, 20)


def test_rows_of_one_length_are_not_ragged():
    assert _batches(30, 30, 30).lengths is None


def test_worst_batch_has_the_longest_input_and_the_longest_target():
    rows = {"input_ids": [[5] * 9, [5] * 100, [5] * 60], "labels": [[1] * 80, [1], [1] * 5]}

    def shapes(chosen: list[Any]) -> dict[str, torch.Tensor]:
        """As long as the longest of each column."""
        return {
            name: torch.zeros((len(chosen), max(len(row[name]) for row in chosen)))
            for name in ("input_ids", "labels")
        }

    batches = FileBatches(Dataset.from_dict(rows), shapes)
    assert batches.worst(2).tokens() == 100
    assert batches.worst(2).tokens(of_decoder=True) == 80
    shorter = batches.of_shape(Shape(rows=2, is_padded=True, lengths=(20, 40)))
    assert (shorter.tokens(), shorter.tokens(of_decoder=True)) == (20, 40)
