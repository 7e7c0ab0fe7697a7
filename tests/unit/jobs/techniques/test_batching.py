"""Rows in one sequence: the same tokens, labels and losses as padded ones, and no padding."""

from typing import Any

import pytest
import torch
from datasets import Dataset

from jobs.techniques.axes.batching import (
    flattened_rows,
    packed_rows,
    packed_whole_rows,
    padded_to_multiple,
)
from jobs.trial.data.collators import PadRows
from tests.support.tiny_decoders import decoder

ROWS = [[5, 6, 7], [8, 9], [10, 11, 12, 13], [14]]


def _dataset(rows: list[list[int]] = ROWS) -> Any:
    dataset = Dataset.from_dict({"input_ids": rows, "labels": rows})
    dataset.set_format("pt")
    return dataset


def _batch_of(dataset: Any, collate: Any) -> Any:
    return collate([dataset[index] for index in range(len(dataset))])


def _loss(batch: Any) -> float:
    return float(decoder(use_cache=False)(**batch).loss.detach())


def test_flattened_rows_have_the_loss_of_padded_rows():
    dataset, collate = flattened_rows(_dataset(), PadRows(0), attention="", tokens=8)
    padded = _loss(_batch_of(dataset, PadRows(0)))
    assert _loss(_batch_of(dataset, collate)) == pytest.approx(padded, rel=1e-6)


def test_flattened_rows_leave_out_padding_and_the_first_labels():
    padded = [{"input_ids": [[5, 6, 0]], "attention_mask": [[1, 1, 0]], "labels": [[5, 6, -100]]}]
    columns = {name: torch.tensor(values) for name, values in padded[0].items()}
    _, collate = flattened_rows(None, lambda rows: rows[0], attention="", tokens=8)
    batch = collate([columns, columns])
    assert batch["input_ids"].tolist() == [[5, 6, 5, 6]]
    assert batch["labels"].tolist() == [[-100, 6, -100, 6]]
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1]]


def test_packed_rows_are_full_blocks_of_the_same_tokens():
    packed, collate = packed_rows(_dataset(), PadRows(0), attention="", tokens=4)
    batch = _batch_of(packed, collate)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8], [9, 10, 11, 12]]
    # Row 2 is cut after its first token, row 3 after its third.
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0], [0, 0, 1, 2]]
    assert batch["labels"].tolist() == [[-100, 6, 7, -100], [-100, -100, 11, 12]]


def test_packed_rows_for_flash_attention_are_one_sequence_of_counted_blocks():
    packed, collate = packed_rows(_dataset(), PadRows(0), attention="flash_attention_2", tokens=4)
    batch = collate([packed[0], packed[1]])
    assert batch["input_ids"].shape == (1, 8)
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 4, 5, 8]
    assert (batch["max_length_q"], batch["max_length_k"]) == (3, 3)
    assert collate.count_samples(batch) == 2


def test_packed_whole_rows_fill_blocks_without_cutting_a_row():
    packed, collate = packed_whole_rows(_dataset(), PadRows(0), attention="", tokens=5)
    batch = _batch_of(packed, collate)
    # The row of four takes that of one; those of three and two fill the other block.
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 7, -100, 9, -100, 11, 12, 13, -100]]
    assert [len(packed[index]["input_ids"]) for index in range(len(packed))] == [5, 5]
    assert collate.samples_of_rows == [2, 2]
    assert collate.count_samples(batch) == len(ROWS)


def test_packed_whole_rows_have_the_loss_of_padded_rows():
    rows = [list(range(1, 21)), list(range(30, 42)), list(range(50, 59))]
    packed, collate = packed_whole_rows(_dataset(rows), PadRows(0), attention="", tokens=16)
    padded = _loss(_batch_of(_dataset([row[:16] for row in rows]), PadRows(0)))
    assert _loss(_batch_of(packed, collate)) == pytest.approx(padded, rel=1e-5)


def test_packed_rows_with_too_few_tokens_are_refused():
    with pytest.raises(ValueError, match="fewer tokens than one block of 1000"):
        packed_rows(_dataset(), PadRows(0), attention="", tokens=1000)


@pytest.mark.parametrize("brings_mask", [True, False])
def test_padded_to_multiple_pads_what_is_no_multiple(brings_mask):
    rows = [{"input_ids": [7] * count, "labels": [7] * count} for count in (5, 3)]
    if brings_mask:
        rows = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    _, collate = padded_to_multiple([], PadRows(9), attention="", tokens=64, multiple=4)
    batch = collate(rows)
    assert {tuple(column.shape) for column in batch.values()} == {(2, 8)}
    assert batch["input_ids"][0].tolist() == [7] * 5 + [9] * 3
    assert batch["labels"][0].tolist() == [7] * 5 + [-100] * 3
    assert batch["attention_mask"].sum(1).tolist() == [5, 3]


def test_padded_to_multiple_refuses_a_collator_that_cannot():
    with pytest.raises(ValueError, match="does not pad them to a multiple"):
        padded_to_multiple([], dict, attention="", tokens=64, multiple=4)
