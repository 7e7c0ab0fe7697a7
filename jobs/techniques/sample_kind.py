"""The workload of a training recipe: the kind of its samples, within which speeds are compared."""

import contextlib
import functools

from jobs.spec import Choice, TrainingRecipe
from jobs.techniques import AXES
from jobs.techniques.variant import OTHER_WORKLOAD

Workload = frozenset[tuple[str, Choice]]
"""Pairs of axis and value, such as ("sequence_length", 4096); empty: the samples of the data."""


@functools.cache
def workload_of(recipe: TrainingRecipe) -> Workload:
    """The choices of a recipe that change what one sample is, such as its length."""
    changed = set()
    for axis, value in recipe.choices:
        # A user may have registered an axis or a value, and another version may have had one.
        with contextlib.suppress(KeyError):
            if OTHER_WORKLOAD in AXES[axis].variant(value).traits:
                changed.add((axis, value))
    return frozenset(changed)


def same_workload(recipe: TrainingRecipe, other: TrainingRecipe) -> bool:
    """Whether the samples per second of two recipes can be compared."""
    return workload_of(recipe) == workload_of(other)


def without_length(recipe: TrainingRecipe) -> TrainingRecipe:
    """The recipe without the choice of a sequence length."""
    lengths = {name for name, axis in AXES.items() if axis.integer_unit}
    return TrainingRecipe(frozenset(kept for kept in recipe.choices if kept[0] not in lengths))
