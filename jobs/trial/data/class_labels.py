"""Names of classes as numbers, and a model with as many classes as the data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jobs.spec import ModelSpec

_CLASSIFIES = ("sequence-classification", "token-classification", "image-classification")
_SHOWN = 5
"""Names of classes that a sentence lists."""


def numbered(dataset: Any, path: str) -> Any:
    """The dataset with numbers in place of names in its column ``labels``, in sorted order.

    Numbers stay as they are. The names go into the column's feature, as ``datasets`` keeps them.
    Raises ValueError for a row without a label.
    """
    labels = dataset.select_columns(["labels"])["labels"]
    _check_complete(labels, path)
    names = _names(labels, path)
    if not names:
        return dataset
    number_of = {name: number for number, name in enumerate(names)}

    def number(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """A batch of rows with numbered labels."""
        return {"labels": [_numbers(label, number_of) for label in batch["labels"]]}

    features = dataset.features.copy()
    features["labels"] = _feature(names, is_listed=isinstance(labels[0], list))
    return dataset.map(number, batched=True, features=features)


def _check_complete(labels: Iterable[Any], path: str) -> None:
    for index, label in enumerate(labels):
        if label is None:
            raise ValueError(f"row {index} of {path} has no label")


def _feature(names: Iterable[Any], *, is_listed: bool) -> Any:
    """How ``datasets`` keeps the names of the classes beside a column of their numbers."""
    from datasets import ClassLabel, List

    feature = ClassLabel(names=[str(name) for name in names])
    return List(feature) if is_listed else feature


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
    """The model with as many classes as a user's dataset has; the same if it has enough.

    ``config_labels`` is the number of classes in the model's configuration. Raises ValueError if
    ``model.config`` names a number that is too small.
    """
    features = getattr(dataset, "features", None)
    if model.task not in _CLASSIFIES or not features or "labels" not in features:
        return model
    names = _names_of_feature(features["labels"])
    needed = _outputs(dataset, names, config_labels)
    asked = model.config.get("num_labels")
    if asked is None:
        if needed == config_labels:
            return model
        return replace(model, config={**model.config, "num_labels": needed})
    # A model with one output is a regression, whatever its labels look like.
    if 1 < asked < needed:
        raise ValueError(
            f"model.config.num_labels is {asked}, and the data have {needed} classes"
            f"{_in_brackets(names)}"
        )
    return model


def _names_of_feature(feature: Any) -> Sequence[str]:
    """The names of a column's classes, whether a row has one label or a list; empty for numbers."""
    inner = getattr(feature, "feature", feature)
    names: Sequence[str] = getattr(inner, "names", None) or ()
    return names


def _outputs(dataset: Any, names: Sequence[str], config_labels: int) -> int:
    """How many outputs a model needs for the labels of a dataset, if it has ``config_labels``."""
    if names:
        # With a single output transformers would train a regression.
        return max(2, len(names))
    labels = dataset.select_columns(["labels"]).with_format(None)["labels"]
    if isinstance(next(iter(labels), None), float):
        return 1  # fractions are a regression
    highest = config_labels - 1
    for label in _flat(labels):
        if isinstance(label, int):
            highest = max(highest, label)
    # The file may lack the classes with the highest numbers: a model never gets smaller.
    return highest + 1


def _flat(labels: Iterable[Any]) -> Iterable[Any]:
    """The labels of all rows, whether a row has one or a list of them."""
    for label in labels:
        if isinstance(label, list):
            yield from label
        else:
            yield label


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
