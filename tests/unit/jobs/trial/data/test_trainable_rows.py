"""Rows without a token to learn are left out; token ids that a model does not have are refused."""

from __future__ import annotations

from typing import Any

import datasets
import pytest

from jobs.trial.data.collators import IGNORED
from jobs.trial.data.user_file import trainable_rows


def rows(**columns: list[Any]) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns)


def test_causal_row_of_one_token_has_nothing_to_predict() -> None:
    ids = [[], [3], [3, 4], [5, 6, 7]]
    with pytest.warns(UserWarning, match=r"2 of 4 rows of f.jsonl have no token to learn"):
        left = trainable_rows(rows(input_ids=ids), "causal-lm", "f.jsonl", 10)
    assert left["input_ids"][:] == [[3, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        # A causal language model predicts no first token.
        ("causal-lm", [[IGNORED, IGNORED, 5]]),
        ("token-classification", [[IGNORED, IGNORED, 5], [5, IGNORED, IGNORED]]),
    ],
)
def test_rows_whose_targets_are_all_ignored_are_left_out(task: Any, kept: Any) -> None:
    masked = [[IGNORED] * 3, [IGNORED, IGNORED, 5], [5, IGNORED, IGNORED]]
    dataset = rows(input_ids=[[3, 4, 5]] * 3, labels=masked)
    with pytest.warns(UserWarning, match="of 3 rows"):
        left = trainable_rows(dataset, task, "f.jsonl", 10)
    assert left["labels"][:] == kept


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        ("sequence-classification", [1, 0]),
        ("token-classification", [[1], [0, 1]]),
        ("seq2seq-lm", [[1], [2]]),
        ("masked-lm", None),
    ],
)
def test_rows_of_one_token_stay_where_each_has_a_target(task: Any, labels: Any) -> None:
    dataset = rows(input_ids=[[3], [3, 4]], **({"labels": labels} if labels else {}))
    assert trainable_rows(dataset, task, "f.jsonl", 10) is dataset


def test_rows_of_a_selection_are_counted_and_not_those_of_its_table() -> None:
    dataset = rows(input_ids=[[], [3, 4], [], [5, 6]]).select([3, 2, 1])
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        left = trainable_rows(dataset, "causal-lm", "f.jsonl", 10)
    assert left["input_ids"][:] == [[5, 6], [3, 4]]


def test_file_with_nothing_to_learn_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no row of f.jsonl has a token to learn"):
        trainable_rows(rows(input_ids=[[3], [4]]), "causal-lm", "f.jsonl", 10)


@pytest.mark.parametrize("wrong", [10, -1])
def test_token_id_outside_the_vocabulary_is_refused_wherever_it_is(wrong: int) -> None:
    ids = [[1, 2]] * 3000 + [[1, wrong]]
    with pytest.raises(ValueError, match=rf"token id {wrong}, .* vocabulary of 10"):
        trainable_rows(rows(input_ids=ids), "causal-lm", "f.jsonl", 10)
    assert trainable_rows(rows(input_ids=ids[:5]), "causal-lm", "f.jsonl", None) is not None
