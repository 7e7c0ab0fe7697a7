"""Names of classes as numbers, and a model with as many classes as the data."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jobs.spec import ModelSpec


def numbered(dataset: Any, path: str) -> Any:
    """The dataset with numbers in place of sorted names in ``labels``; the feature keeps the names.
    Numbers stay as they are. Raises ValueError for a row without a label."""
    from datasets import ClassLabel, List

    labels = list(dataset.select_columns(["labels"])["labels"])
    if None in labels:
        raise ValueError(f"row {labels.index(None)} of {path} has no label")
    names = _names(labels)
    if not names:
        return dataset
    is_listed = isinstance(labels[0], list)
    number_of = {name: number for number, name in enumerate(names)}

    def number(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if is_listed:
            return {"labels": [[number_of[name] for name in row] for row in batch["labels"]]}
        return {"labels": [number_of[name] for name in batch["labels"]]}

    feature = ClassLabel(names=[str(name) for name in names])
    features = dataset.features.copy()
    features["labels"] = List(feature) if is_listed else feature
    return dataset.map(number, batched=True, features=features)


def _names(labels: Iterable[Any]) -> list[Any]:
    """The names of the classes in sorted order: texts, or True and False; empty for numbers."""
    distinct = set(_flat(labels))
    if set(map(type, distinct)) == {bool}:
        return [False, True]
    return sorted(name for name in distinct if isinstance(name, str))


def fitted(model: ModelSpec, dataset: Any, *, config_labels: int) -> ModelSpec:
    """The model with as many classes as a user's dataset has; the same if it has enough.
    ``config_labels``: those of its configuration. Raises ValueError if ``model.config`` has fewer.
    """
    features = getattr(dataset, "features", None)
    if not model.task.endswith("-classification") or not features or "labels" not in features:
        return model
    # The column has one label a row, or a list of them.
    feature = getattr(features["labels"], "feature", features["labels"])
    names: Sequence[str] = getattr(feature, "names", None) or ()
    needed = _outputs(dataset, names, config_labels)
    asked = model.config.get("num_labels")
    if asked is None:
        if needed == config_labels:
            return model
        return replace(model, config={**model.config, "num_labels": needed})
    # A model with one output is a regression, whatever its labels look like.
    if 1 < asked < needed:
        shown = ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
        raise ValueError(
            f"model.config.num_labels is {asked}, and the data have {needed} classes"
            f"{f' ({shown})' if names else ''}"
        )
    return model


def _outputs(dataset: Any, names: Sequence[str], config_labels: int) -> int:
    """How many outputs a model needs for the labels of a dataset, if it has ``config_labels``."""
    if names:
        # With a single output transformers would train a regression.
        return max(2, len(names))
    labels = dataset.select_columns(["labels"]).with_format(None)["labels"]
    if isinstance(next(iter(labels), None), float):
        return 1  # fractions are a regression
    # The file may lack the classes with the highest numbers: a model never gets smaller.
    numbers = (label for label in _flat(labels) if isinstance(label, int))
    return max(config_labels, 1 + max(numbers, default=-1))


def _flat(labels: Iterable[Any]) -> Iterable[Any]:
    for label in labels:
        yield from label if isinstance(label, list) else (label,)
