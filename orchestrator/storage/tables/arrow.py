"""Arrow tables as this project writes them: types, and the units and meanings of fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from jobs.record import SCHEMA_VERSION, ArrowType, Column
from orchestrator.distribution import tool_version

ARROW_TYPES: dict[ArrowType, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    # Parquet names a list's values "element". With this name, a table that was written and read
    # again has the same schema.
    "list<double>": pa.list_(pa.field("element", pa.float64())),
    "list<string>": pa.list_(pa.field("element", pa.string())),
}
"""A column's declared type -> Arrow's."""


def build_table(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, str],
    axis_of_column: Mapping[str, str] | None = None,
) -> pa.Table:
    """Rows as a table with these columns; a value that a row lacks is null. ``axis_of_column`` maps
    a column to the axis that it holds. Raises pyarrow.ArrowInvalid if a value is not of its
    declared type."""
    axes = axis_of_column or {}
    fields = [_field_of(column, axes.get(column.name)) for column in columns]
    arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(metadata)))


def _field_of(column: Column, axis: str | None) -> pa.Field:
    about = {"unit": column.unit, "doc": column.doc} | ({"axis": axis} if axis else {})
    return pa.field(column.name, ARROW_TYPES[column.type], metadata=about)


def type_name(kind: pa.DataType) -> ArrowType:
    """The declared type of an Arrow type; "string" if it belongs to none."""
    return next((name for name, declared in ARROW_TYPES.items() if declared == kind), "string")


def metadata_of(table: pa.Table) -> dict[str, str]:
    """The schema's metadata as text, without Arrow's own entry."""
    # Arrow keeps its own schema there, as bytes that are not text.
    return {
        key.decode(): value.decode()
        for key, value in (table.schema.metadata or {}).items()
        if key != b"ARROW:schema"
    }


def axes_of(table: pa.Table) -> dict[str, str]:
    """Axis -> the name of its column."""
    axes = {field.name: (field.metadata or {}).get(b"axis") for field in table.schema}
    return {axis.decode(): name for name, axis in axes.items() if axis is not None}


def tool_metadata() -> dict[str, str]:
    """The metadata in every table about the program that wrote it."""
    return {"tool_version": tool_version(), "schema_version": str(SCHEMA_VERSION)}
