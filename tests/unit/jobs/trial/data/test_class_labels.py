"""A model gets as many classes as the data have."""

from __future__ import annotations

from typing import Any

import datasets
import pytest

from jobs.spec import ModelSpec, Task
from jobs.trial.data.class_labels import fitted, numbered

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
def test_fitted_sets_the_number_of_classes(labels: list[Any], classes: int | None) -> None:
    model = fitted(BERT, dataset_of(labels), config_labels=2)
    assert model.config.get("num_labels") == classes


def test_fitted_refuses_a_number_that_is_too_small() -> None:
    model = ModelSpec(task=BERT.task, architecture="bert", config={"num_labels": 2})
    sentence = r"num_labels is 2, and the data have 3 classes \(a, b, c\)"
    with pytest.raises(ValueError, match=sentence):
        fitted(model, dataset_of(["c", "b", "a"]), config_labels=2)


@pytest.mark.parametrize("asked", [1, 7])
def test_fitted_keeps_a_number_that_the_user_gave(asked: int) -> None:
    model = ModelSpec(task=BERT.task, architecture="bert", config={"num_labels": asked})
    assert fitted(model, dataset_of(["c", "b", "a"]), config_labels=asked) is model


@pytest.mark.parametrize("task", ["causal-lm", "seq2seq-lm"])
def test_fitted_leaves_language_models_alone(task: Task) -> None:
    model = ModelSpec(task=task, architecture="gpt2")
    assert fitted(model, dataset_of([7, 8]), config_labels=2) is model
