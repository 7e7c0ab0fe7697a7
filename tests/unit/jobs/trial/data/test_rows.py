"""What rows tell: which are the longest, how many classes they have, and which can be learned."""

from typing import Any

import datasets
import numpy as np
import pytest

from jobs.spec import ModelSpec
from jobs.trial.data.class_labels import fitted, numbered
from jobs.trial.data.collators import IGNORED
from jobs.trial.data.row_lengths import RowLengths, ragged_lengths
from jobs.trial.data.user_file import trainable_rows


def lengths(**columns: list[int]) -> RowLengths:
    return RowLengths(by_column={name: np.array(tokens) for name, tokens in columns.items()})


def rows_of(*counts: int) -> list[list[int]]:
    return [[7] * count for count in counts]


def test_worst_micro_batches_hold_the_longest_rows_with_the_worst_last():
    ragged = lengths(input_ids=[3, 9, 4, 8, 1, 7])
    assert ragged.worst_micro_batches(2, 2) == [[5, 2], [1, 3]]
    # A dataset of few rows gives fewer.
    assert lengths(input_ids=[3, 9, 4]).worst_micro_batches(2, 4) == [[0], [1, 2]]


def test_worst_micro_batch_holds_the_longest_row_of_each_column():
    ragged = lengths(input_ids=[90, 80, 85, 5], labels=[2, 1, 2, 50])
    (worst,) = ragged.worst_micro_batches(2, 1)
    assert sorted(worst) == [0, 3]


def test_worst_micro_batch_of_one_row_counts_columns_equally():
    ragged = lengths(input_ids=[100, 98], labels=[1, 50])
    assert ragged.worst_micro_batches(1, 1) == [[0]]


def test_ragged_lengths_reads_every_list_column():
    dataset = datasets.Dataset.from_dict(
        {"input_ids": rows_of(1, 3), "labels": rows_of(2, 2), "name": ["a", "b"]}
    )
    ragged = ragged_lengths(dataset)
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
def test_ragged_lengths_of_equal_rows_is_none(columns):
    assert ragged_lengths(datasets.Dataset.from_dict(columns)) is None


BERT = ModelSpec(task="sequence-classification", architecture="bert")


def dataset_of(labels: list[Any]) -> Any:
    return numbered(datasets.Dataset.from_dict({"labels": labels}), "rows.csv")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["a", "b", "c"], 3),
        ([0, 1, 4], 5),
        ([0, 1], None),
        ([0, 0], None),
        (["a", "a"], None),
        ([0.5, 1.5], 1),
        ([[0, -100], [3]], 4),
    ],
)
def test_fitted_sets_the_number_of_classes(labels, classes):
    model = fitted(BERT, dataset_of(labels), config_labels=2)
    assert model.config.get("num_labels") == classes


def test_fitted_refuses_a_number_that_is_too_small():
    model = ModelSpec(task=BERT.task, architecture="bert", config={"num_labels": 2})
    sentence = r"num_labels is 2, and the data have 3 classes \(a, b, c\)"
    with pytest.raises(ValueError, match=sentence):
        fitted(model, dataset_of(["c", "b", "a"]), config_labels=2)


@pytest.mark.parametrize("asked", [1, 7])
def test_fitted_keeps_a_number_that_the_user_gave(asked):
    model = ModelSpec(task=BERT.task, architecture="bert", config={"num_labels": asked})
    assert fitted(model, dataset_of(["c", "b", "a"]), config_labels=asked) is model


@pytest.mark.parametrize("task", ["causal-lm", "seq2seq-lm"])
def test_fitted_leaves_language_models_alone(task):
    model = ModelSpec(task=task, architecture="gpt2")
    assert fitted(model, dataset_of([7, 8]), config_labels=2) is model


def rows(**columns: list[Any]) -> datasets.Dataset:
    return datasets.Dataset.from_dict(columns)


def test_causal_row_of_one_token_has_nothing_to_predict():
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
def test_rows_whose_targets_are_all_ignored_are_left_out(task, kept):
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
def test_rows_of_one_token_stay_where_each_has_a_target(task, labels):
    dataset = rows(input_ids=[[3], [3, 4]], **({"labels": labels} if labels else {}))
    assert trainable_rows(dataset, task, "f.jsonl", 10) is dataset


def test_rows_of_a_selection_are_counted_and_not_those_of_its_table():
    dataset = rows(input_ids=[[], [3, 4], [], [5, 6]]).select([3, 2, 1])
    with pytest.warns(UserWarning, match="1 of 3 rows"):
        left = trainable_rows(dataset, "causal-lm", "f.jsonl", 10)
    assert left["input_ids"][:] == [[5, 6], [3, 4]]


def test_file_with_nothing_to_learn_is_refused():
    with pytest.raises(ValueError, match=r"no row of f.jsonl has a token to learn"):
        trainable_rows(rows(input_ids=[[3], [4]]), "causal-lm", "f.jsonl", 10)


@pytest.mark.parametrize("wrong", [10, -1])
def test_token_id_outside_the_vocabulary_is_refused_wherever_it_is(wrong):
    ids = [[1, 2]] * 3000 + [[1, wrong]]
    with pytest.raises(ValueError, match=rf"token id {wrong}, .* vocabulary of 10"):
        trainable_rows(rows(input_ids=ids), "causal-lm", "f.jsonl", 10)
    assert trainable_rows(rows(input_ids=ids[:5]), "causal-lm", "f.jsonl", None) is not None
