"""Writes the Parquet files of a run, with units and meanings of the columns as metadata."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.record import SCHEMA_VERSION, ArrowType, Column, TrialRecord
from orchestrator.distribution import tool_version
from orchestrator.storage.layout import written_beside
from orchestrator.storage.tables.columns import ANATOMY_COLUMNS, STEP_COLUMNS
from orchestrator.storage.tables.trial_table import TrialTable, anatomy_rows

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


def arrow_table(trials: TrialTable) -> pa.Table:
    """The trials as an Arrow table. Fields carry ``unit``, ``doc`` and, for an axis, ``axis``.
    Raises pyarrow.ArrowInvalid if a value is not of its declared type."""
    metadata = {
        "run": json.dumps(dataclasses.asdict(trials.run), sort_keys=True),
        "config": json.dumps(dict(trials.run.config), sort_keys=True),
        "command": trials.run.command,
        "environments": json.dumps(trials.environments, sort_keys=True),
        "tool_version": trials.tool_version,
        "schema_version": str(SCHEMA_VERSION),
    }
    axis_of_column = {column: axis for axis, column in trials.axes.items()}
    return build_table(trials.columns, trials.rows, metadata, axis_of_column)


def steps_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every optimizer step of every trial, warm-up included."""
    rows = [row for record in records for row in _step_rows(record)]
    return build_table(STEP_COLUMNS, rows, tool_metadata())


def _step_rows(record: TrialRecord) -> Iterator[dict[str, Any]]:
    # The trial may have extended the warm-up that it was given. Its own count says how far.
    warmup_steps = record.measurements.get("warmup_steps", record.spec.measure.warmup_steps)
    # A trial that ended within a step has no loss of it.
    for step, values in enumerate(itertools.zip_longest(*record.steps.values())):
        identity = {"trial_id": record.trial_id, "step": step, "counted": step >= warmup_steps}
        yield {**identity, **dict(zip(record.steps, values, strict=True))}


def anatomy_table(records: Sequence[TrialRecord]) -> pa.Table:
    """The anatomies of all profiled trials, one row for every figure."""
    profiled = ((record.trial_id, record.anatomy) for record in records if record.anatomy)
    rows = [row for profile in profiled for row in anatomy_rows(*profile)]
    return build_table(ANATOMY_COLUMNS, rows, tool_metadata())


def append_columns(
    table: pa.Table, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """``table`` with more columns, whose values are in ``rows``."""
    more = build_table(columns, rows, {})
    for field, values in zip(more.schema, more.columns, strict=True):
        table = table.append_column(field, values)
    return table


def write(table: pa.Table, path: Path) -> Path:
    """Write a table beside ``path``, and move it there once it is complete."""
    with written_beside(path) as partial:
        # With checksums a reader notices a damaged page.
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    return path


_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "deepspeed")


def write_predictions(rows: Sequence[Mapping[str, Any]], path: Path, *, gpu: str) -> Path:
    """Write rows of ``reporting.prediction.row`` as Parquet, with the versions that made them."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    versions = {name: version(name) for name in _LIBRARIES}
    metadata = {"gpu": gpu, "tool_version": tool_version(), **versions}
    return write(table.replace_schema_metadata(metadata), path)
