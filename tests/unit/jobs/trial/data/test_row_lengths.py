"""Which rows take the most memory together, and how much of their batches is padding."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pytest

from jobs.trial.data.row_lengths import RowLengths, ragged_lengths


def lengths(**columns: list[int]) -> RowLengths:
    return RowLengths(by_column={name: np.array(tokens) for name, tokens in columns.items()})


def rows_of(*counts: int) -> list[list[int]]:
    return [[7] * count for count in counts]


def test_worst_micro_batches_hold_the_longest_rows_with_the_worst_last() -> None:
    ragged = lengths(input_ids=[3, 9, 4, 8, 1, 7])
    assert ragged.worst_micro_batches(2, 2) == [[5, 2], [1, 3]]
    # A dataset of few rows gives fewer.
    assert lengths(input_ids=[3, 9, 4]).worst_micro_batches(2, 4) == [[0], [1, 2]]


def test_worst_micro_batch_holds_the_longest_row_of_each_column() -> None:
    ragged = lengths(input_ids=[90, 80, 85, 5], labels=[2, 1, 2, 50])
    (worst,) = ragged.worst_micro_batches(2, 1)
    assert sorted(worst) == [0, 3]


def test_worst_micro_batch_of_one_row_counts_columns_equally() -> None:
    ragged = lengths(input_ids=[100, 98], labels=[1, 50])
    assert ragged.worst_micro_batches(1, 1) == [[0]]


def test_padding_share_counts_positions_up_to_the_longest_of_each_batch() -> None:
    ragged = lengths(input_ids=[1, 4, 2, 2])
    assert ragged.padding_share([[0, 1], [2, 3]]) == pytest.approx(1 - 9 / 12)
    assert ragged.padding_share([]) == 0.0


def test_ragged_lengths_reads_every_list_column() -> None:
    dataset = datasets.Dataset.from_dict(
        {"input_ids": rows_of(1, 3), "labels": rows_of(2, 2), "name": ["a", "b"]}
    )
    ragged = ragged_lengths(dataset)
    assert ragged is not None
    assert {name: tokens.tolist() for name, tokens in ragged.by_column.items()} == {
        "input_ids": [1, 3],
        "labels": [2, 2],
    }


@pytest.mark.parametrize(
    "columns",
    [
        {"input_ids": rows_of(2, 2), "labels": [0, 1]},
        {"pixel_values": [[0.5], [0.1, 0.2]]},
        {"input_ids": rows_of(2)},
    ],
)
def test_ragged_lengths_of_equal_rows_is_none(columns: dict[str, Any]) -> None:
    assert ragged_lengths(datasets.Dataset.from_dict(columns)) is None
