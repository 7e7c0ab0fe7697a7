"""A table's rows as mappings that look up what is asked of them, and its columns as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from orchestrator.analysis.frame.categorical import Coded, Figures, Mask, Places, code
from orchestrator.analysis.pareto import Row

if TYPE_CHECKING:
    import pyarrow


Reader = Callable[[int], Any]
"""The value of a row in a column."""


class _Columns(dict[str, Reader]):
    """The columns asked for so far. Raises KeyError for one that the table does not have."""

    def __init__(self, table: pyarrow.Table) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> Reader:
        self[name] = reader = _reader(self.table[name])
        return reader


def _reader(column: pyarrow.ChunkedArray) -> Reader:
    if str(column.type) == "string":
        coded = _coded(column)
        return lambda place: coded.values[coded.at.item(place)]
    if str(column.type) not in ("int64", "double"):
        return list(column.to_pylist()).__getitem__
    figures, known = column.fill_null(0).to_numpy(), column.is_valid().to_numpy()
    return lambda place: figures.item(place) if known[place] else None


def _coded(column: pyarrow.ChunkedArray) -> Coded:
    found = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return Coded(
        values=tuple(found.dictionary.to_pylist()), at=found.indices.to_numpy().astype(np.int64)
    )


class _Row(Mapping[str, Any]):
    """One row; its values are looked up in the shared columns."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: _Columns, place: int) -> None:
        self._columns, self._place = columns, place

    def __getitem__(self, name: str) -> Any:
        return self._columns[name](self._place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        return int(self._columns.table.num_columns)


class Views(Sequence[Row]):
    """Rows of a table, in order. A million rows of a hundred columns are cheap as long as few columns are read."""

    def __init__(self, columns: _Columns, places: Places) -> None:
        self._columns, self._places = columns, places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Row]:
        return (_Row(self._columns, place) for place in self._places.tolist())

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> Views: ...

    def __getitem__(self, place: int | slice) -> Row | Views:
        if isinstance(place, slice):
            return Views(self._columns, self._places[place])
        return _Row(self._columns, int(self._places[place]))

    def where(self, which: Mask) -> Views:
        """Some of the rows."""
        return Views(self._columns, self._places[which])

    def column(self, name: str) -> pyarrow.ChunkedArray | None:
        """A column of these rows; None where the table has none of that name."""
        table = self._columns.table
        return table[name].take(self._places) if name in table.column_names else None


def views_of(table: pyarrow.Table) -> Views:
    """All rows of a table."""
    return Views(_Columns(table), np.arange(table.num_rows))


def where(rows: Sequence[Row], which: Mask) -> Sequence[Row]:
    """Some of the rows, in order."""
    return (
        rows.where(which)
        if isinstance(rows, Views)
        else [rows[place] for place in np.flatnonzero(which).tolist()]
    )


def coded(rows: Sequence[Row], name: str) -> Coded:
    """A column of few different values; None where a row has nothing."""
    if not isinstance(rows, Views):
        return code(row.get(name) for row in rows)
    column = rows.column(name)
    return code([None] * len(rows)) if column is None else _coded(column)


def figures(rows: Sequence[Row], name: str) -> Figures:
    """A column of figures."""
    if not isinstance(rows, Views):
        return np.array([row.get(name) for row in rows], np.float64)
    column = rows.column(name)
    if column is None:
        return np.full(len(rows), np.nan)
    return np.asarray(column.cast("float64", safe=False).to_numpy(), np.float64)


def given(rows: Sequence[Row], name: str) -> Mask:
    """Which rows have something in a column of lists."""
    if not isinstance(rows, Views):
        return np.array([bool(row.get(name)) for row in rows], bool)
    column = rows.column(name)
    if column is None:
        return np.zeros(len(rows), bool)
    return np.asarray(
        column.combine_chunks().value_lengths().fill_null(0).to_numpy(zero_copy_only=False) > 0
    )
