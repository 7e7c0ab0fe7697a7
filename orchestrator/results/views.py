"""A table's rows as mappings over its columns, each turned into Python values when a row is first asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow


class _Columns(dict[str, list[Any]]):
    """The columns asked for so far, as lists. Raises KeyError for one that the table does not have."""

    def __init__(self, table: pyarrow.Table) -> None:
        super().__init__()
        self.table = table

    def __missing__(self, name: str) -> list[Any]:
        self[name] = values = _listed(self.table[name])
        return values


def _listed(column: pyarrow.ChunkedArray) -> list[Any]:
    """Alike texts as one object: a million rows choose among a few."""
    if str(column.type) != "string":
        return list(column.to_pylist())
    coded = column.combine_chunks().dictionary_encode()
    texts = [*coded.dictionary.to_pylist(), None]
    return [texts[place] for place in coded.indices.fill_null(len(texts) - 1).to_pylist()]


class _Row(Mapping[str, Any]):
    """One row; its values are looked up in the shared columns."""

    __slots__ = ("_columns", "_place")

    def __init__(self, columns: _Columns, place: int) -> None:
        self._columns, self._place = columns, place

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.table.column_names)

    def __len__(self) -> int:
        return int(self._columns.table.num_columns)


def views_of(table: pyarrow.Table) -> tuple[Mapping[str, Any], ...]:
    """The rows in order. A million rows of a hundred columns are cheap as long as few of the columns are read."""
    columns = _Columns(table)
    return tuple(_Row(columns, place) for place in range(table.num_rows))
