"""Columns as arrays: of few different values the place of each row's own among them, of figures the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
"""Places of rows, or a number for each row."""
Figures = NDArray[np.float64]
"""A figure for each row; not a number where it is not known."""
Mask = NDArray[np.bool_]
"""Which rows."""

_MOST = 2**62


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Coded:
    """A column of few different values: those, in the order first met, and of each row the place of its own."""

    values: tuple[Any, ...]
    at: Places

    def take(self, which: Places | Mask) -> Coded:
        """The column of some of the rows; all values stay."""
        return Coded(values=self.values, at=self.at[which])

    def met(self) -> list[Any]:
        """The values that rows have, in the order first met."""
        return [self.values[self.at[place]] for place in first_of_each(self.at)]

    def equal(self, value: Any) -> Mask:
        """The rows that have this value."""
        rows: Mask = self.at == (self.values.index(value) if value in self.values else -1)
        return rows


def code(values: Iterable[Any]) -> Coded:
    """A column of hashable values."""
    known: dict[Any, int] = {}
    at = np.fromiter((known.setdefault(value, len(known)) for value in values), np.int64)
    return Coded(values=tuple(known), at=at)


def alike(columns: Sequence[Coded], rows: int) -> Places:
    """A number for each row; rows that are equal in every column have the same."""
    numbers, most = np.zeros(rows, np.int64), 1
    for column in columns:
        if most * len(column.values) > _MOST:
            numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
            most = rows
        numbers = numbers * len(column.values) + column.at
        most *= len(column.values)
    return numbers


def first_of_each(numbers: Places) -> Places:
    """The places where a number is met first, in order."""
    found: Places = np.sort(np.unique(numbers, return_index=True)[1])
    return found
