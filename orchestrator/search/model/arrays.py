"""Array types, numbers for things, kernels of groups, and rounding that keeps decisions equal on
every machine."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kernel = Callable[[Indices, Indices], Array]
"""Figures of pairs of groups, in the shape to which both are broadcast; parts come before it."""
T = TypeVar("T", bound=Hashable)


class Numbering(dict[T, int]):
    """Item -> its number, in the order in which items are first looked up."""

    def __missing__(self, item: T) -> int:
        self[item] = len(self)
        return self[item]

    def of(self, items: Iterable[T]) -> Indices:
        """The numbers of items, shape (items,)."""
        return np.array([self[item] for item in items], int)


def between(kernel: Kernel, group_of: Indices, rows: Indices, columns: Indices) -> Array:
    """The kernel between the groups of items, each pair computed once, shape (..., rows,
    columns)."""
    groups, row_numbers = np.unique(group_of[rows], return_inverse=True)
    others, column_numbers = np.unique(group_of[columns], return_inverse=True)
    of_groups = kernel(groups[:, None], others)
    return np.asarray(of_groups.take(row_numbers, axis=-2).take(column_numbers, axis=-1))


def rounded(logarithms: Array) -> Array:
    """Logarithms to a millionth: rounding errors of another machine lead to the same trials."""
    return logarithms.round(6)
