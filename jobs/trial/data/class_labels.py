"""Names of classes as numbers, and a model with as many classes as the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jobs.spec import ModelSpec
from jobs.trial.data.base import IGNORED

_CLASSIFIES = ("sequence-classification", "token-classification", "image-classification")
_SHOWN = 5
"""Names of classes that a sentence lists."""


def numbered(dataset: Any, path: str) -> Any:
    """The dataset with numbers in place of names in its column ``labels``, in sorted order.

    Numbers stay as they are. The names go into the column's feature, as ``datasets`` keeps them.
    Raises ValueError for a row without a label.
    """
    from datasets import ClassLabel, List

    labels = dataset.select_columns(["labels"])["labels"]
    for index, label in enumerate(labels):
        if label is None:
            raise ValueError(f"row {index} of {path} has no label")
    names = _names(labels, path)
    if not names:
        return dataset
    number_of = {name: number for number, name in enumerate(names)}

    def number(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """A batch of rows with numbered labels."""
        return {"labels": [_numbers(label, number_of) for label in batch["labels"]]}

    feature: Any = ClassLabel(names=[str(name) for name in names])
    if isinstance(labels[0], list):
        feature = List(feature)
    features = dataset.features.copy()
    features["labels"] = feature
    return dataset.map(number, batched=True, features=features)


def _names(labels: Iterable[Any], path: str) -> list[Any]:
    """The names of the classes in sorted order: texts, or True and False; empty for numbers."""
    distinct = set(_flat(labels))
    if distinct and distinct <= {False, True} and all(type(name) is bool for name in distinct):
        return [False, True]
    names = sorted(name for name in distinct if isinstance(name, str))
    others = [name for name in distinct if not isinstance(name, str)]
    if names and others:
        raise ValueError(f"the labels of {path} are partly texts and partly {_shown(others)}")
    return names


def fitted(model: ModelSpec, dataset: Any, *, config_labels: int) -> ModelSpec:
    """The model with as many classes as a user's dataset has; the same where it has enough.

    ``config_labels`` is the number of classes in the model's configuration. Raises ValueError where
    ``model.config`` names a number that is too small.
    """
    features = getattr(dataset, "features", None)
    if model.task not in _CLASSIFIES or not features or "labels" not in features:
        return model
    count, names = _classes(dataset)
    if count is None or count == config_labels:
        return model
    asked = model.config.get("num_labels")
    if asked is None:
        return _with_classes(model, count, names, config_labels)
    # A model with one output is a regression, whatever its labels look like.
    if 1 < asked < count:
        raise ValueError(
            f"model.config.num_labels is {asked}, and the data have {count} classes"
            f"{_in_brackets(names)}"
        )
    return model


def _with_classes(
    model: ModelSpec, count: int, names: Sequence[str], config_labels: int
) -> ModelSpec:
    needed = count
    if names:
        # With a single output transformers would train a regression.
        needed = max(2, count)
    elif count > 1:
        # The file may lack the classes with the highest numbers.
        needed = max(count, config_labels)
    if needed == config_labels:
        return model
    return replace(model, config={**model.config, "num_labels": needed})


def _classes(dataset: Any) -> tuple[int | None, Sequence[str]]:
    """How many classes the labels have, and their names if they have any.

    One for fractions. None where it cannot be said: several labels a row.
    """
    feature = dataset.features["labels"]
    inner = getattr(feature, "feature", feature)
    names: Sequence[str] = getattr(inner, "names", ())
    if names:
        return len(names), names
    labels = dataset.select_columns(["labels"]).with_format(None)["labels"]
    if isinstance(next(iter(labels), None), float):
        return 1, ()
    numbers = [label for label in _flat(labels) if isinstance(label, int) and label != IGNORED]
    if not numbers:
        return None, ()
    return max(numbers) + 1, ()


def _flat(labels: Iterable[Any]) -> Iterable[Any]:
    """The labels of all rows, whether a row has one or a list of them."""
    return itertools.chain.from_iterable(
        label if isinstance(label, list) else (label,) for label in labels
    )


def _numbers(label: Any, number_of: dict[str, int]) -> Any:
    if isinstance(label, list):
        return [number_of[name] for name in label]
    return number_of[label]


def _in_brackets(names: Sequence[str]) -> str:
    return f" ({_shown(names)})" if names else ""


def _shown(values: Iterable[Any]) -> str:
    """The first few values in words."""
    texts = [str(value) for value in itertools.islice(values, _SHOWN + 1)]
    if len(texts) > _SHOWN:
        return ", ".join([*texts[:_SHOWN], "..."])
    return ", ".join(texts)
