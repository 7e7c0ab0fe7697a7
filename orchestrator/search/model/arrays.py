"""Array types, numbers for things, and rounding that keeps decisions equal on every machine."""

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
T = TypeVar("T", bound=Hashable)


class Numbering(dict[T, int]):
    """Item -> its number, in the order in which items are first looked up."""

    def __missing__(self, item: T) -> int:
        self[item] = len(self)
        return self[item]

    def of(self, items: Iterable[T]) -> Indices:
        """The numbers of items, shape (items,)."""
        return np.array([self[item] for item in items], int)


def rounded(logarithms: Array) -> Array:
    """Logarithms to a millionth: rounding errors of another machine lead to the same trials."""
    return logarithms.round(6)
