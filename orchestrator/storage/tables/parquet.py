"""The run's Parquet files, written and read: units and meanings in the fields' metadata, the run in
the schema's.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.anatomy_record import Anatomy
from jobs.record import SCHEMA_VERSION, ArrowType, Column, TrialRecord
from orchestrator.storage.layout import ANATOMY, STEPS, written_beside
from orchestrator.storage.migration import upgraded_rows
from orchestrator.storage.run_metadata import RunMetadata, UnreadableRunError
from orchestrator.storage.tables import anatomy_rows
from orchestrator.storage.tables.columns import (
    ANATOMY_COLUMNS,
    BASE,
    FOLLOW_UP,
    STEP_COLUMNS,
    axis_columns,
    declared_columns,
    trial_table_columns,
)
from orchestrator.storage.tables.rows import rows_of

ARROW_TYPES: dict[ArrowType, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    # Parquet calls a list's values "element"; so do these, and a table is the same written or read.
    "list<double>": pa.list_(pa.field("element", pa.float64())),
    "list<string>": pa.list_(pa.field("element", pa.string())),
}

_IN_EVERY_VERSION = ("trial_id", "outcome")
"""Columns by which a table of trials is recognized, whatever its version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialTable:
    """A run's trials as rows, and what ``trials.parquet`` says of them in its metadata."""

    rows: list[dict[str, Any]]
    """One a trial, column -> value; a column that was not measured may be missing."""
    columns: tuple[Column, ...]
    axes: Mapping[str, str]
    """Axis -> the name of its column."""
    run: RunMetadata
    environments: Mapping[str, Mapping[str, Any]]
    """environment_id -> GPU model, driver and versions."""
    tool_version: str = ""


def table_of_records(
    records: Sequence[TrialRecord],
    run: RunMetadata | None = None,
    declared: Sequence[Column] | None = None,
) -> TrialTable:
    """One row a trial, in the order of ``records``."""
    measured = declared_columns() if declared is None else tuple(declared)
    axes = axis_columns(records, measured)
    rows = rows_of(records, axes)
    environments = {}
    for row, record in zip(rows, records, strict=True):
        if record.environment:
            environments[row["environment_id"]] = dict(record.environment)
    return TrialTable(
        rows=rows,
        columns=trial_table_columns(records, measured),
        axes={axis: column.name for axis, column in axes.items()},
        run=run or RunMetadata(),
        environments=environments,
        tool_version=tool_version(),
    )


def read_trials_file(path: Path) -> TrialTable:
    """A table of trials that this project wrote, of any version.

    Raises FileNotFoundError or UnreadableRunError.
    """
    table = _read(path)
    metadata = _metadata(table)
    try:
        schema_version = int(metadata.get("schema_version", 1))
        axes = _axes(table)
        rows = table.to_pylist()
        _require(path, _IN_EVERY_VERSION, rows)
        if schema_version < SCHEMA_VERSION:
            rows = upgraded_rows(rows, axes)
        _require(path, [column.name for column in BASE], rows)
        return TrialTable(
            rows=rows,
            columns=_columns_of(table, axes),
            axes=axes,
            run=RunMetadata.from_json(json.loads(metadata.get("run", "{}"))),
            environments=json.loads(metadata.get("environments", "{}")),
            tool_version=metadata.get("tool_version", ""),
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UnreadableRunError):
            raise
        raise _unreadable(path, error) from None


def arrow_table(trials: TrialTable) -> pa.Table:
    """The table as it is written.

    Raises pyarrow.ArrowInvalid where a value is not of its declared type.

    Fields carry ``unit``, ``doc`` and, for an axis, ``axis``; the schema carries ``run``,
    ``config``, ``command``, ``environments``, ``tool_version`` and ``schema_version``.
    """
    run = dataclasses.replace(trials.run, schema_version=SCHEMA_VERSION)
    metadata = {
        "run": json.dumps(dataclasses.asdict(run), sort_keys=True),
        "config": json.dumps(dict(run.config), sort_keys=True),
        "command": run.command,
        "environments": json.dumps(trials.environments, sort_keys=True),
        "tool_version": trials.tool_version,
        "schema_version": str(SCHEMA_VERSION),
    }
    axis_of_column = {column: axis for axis, column in trials.axes.items()}
    return _build(trials.columns, trials.rows, metadata, axis_of_column)


def steps_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every optimizer step of every trial, warm-up included; seconds as measured,
    missing ones null.
    """
    rows = [row for record in records for row in _step_rows(record)]
    return _build(STEP_COLUMNS, rows, _tool_metadata())


def _step_rows(record: TrialRecord) -> list[dict[str, Any]]:
    steps = max(map(len, record.steps.values()), default=0)
    warmup_steps = record.measurements.get("warmup_steps", record.spec.measure.warmup_steps)
    rows = []
    for step in range(steps):
        row = {"trial_id": record.trial_id, "step": step, "counted": step >= warmup_steps}
        for name, values in record.steps.items():
            row[name] = values[step] if step < len(values) else None
        rows.append(row)
    return rows


def anatomy_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every figure of every profiled trial, and for every class of memory over its
    step.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.anatomy is not None:
            rows += anatomy_rows.rows_of(record.trial_id, record.anatomy)
    return _build(ANATOMY_COLUMNS, rows, _tool_metadata())


def profiled_trials(run_folder: Path) -> frozenset[str]:
    """The trials whose anatomy is in the folder's ``anatomy.parquet``; none where there is no such
    file.
    """
    try:
        table = _read_anatomies(run_folder, columns=["trial_id"])
    except FileNotFoundError:
        return frozenset()
    return frozenset(table["trial_id"].unique().to_pylist())


def losses_in_steps_file(run_folder: Path) -> dict[str, list[float]]:
    """Trial -> its losses step by step, from ``steps.parquet``; empty without such a file."""
    losses: dict[str, list[float]] = {}
    for row in read_steps(run_folder, ("trial_id", "loss")):
        if row["loss"] is not None:
            losses.setdefault(row["trial_id"], []).append(row["loss"])
    return losses


def read_steps(run_folder: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Columns of ``steps.parquet``, a row for each step; empty where there is no such file."""
    path = run_folder / STEPS
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = _read(path, columns=list(columns)).to_pylist()
    return rows


def read_anatomies(run_folder: Path, trial_ids: Collection[str]) -> dict[str, Anatomy]:
    """Trial -> its anatomy, from ``anatomy.parquet``.

    Raises UnreadableRunError on a damaged or foreign file.
    """
    if not trial_ids:
        return {}
    wanted = _read_anatomies(run_folder).filter(pc.field("trial_id").isin(list(trial_ids)))
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in wanted.to_pylist():
        rows.setdefault(row["trial_id"], []).append(row)
    try:
        return {trial_id: anatomy_rows.anatomy_of(own) for trial_id, own in rows.items()}
    except (TypeError, ValueError) as error:
        raise _unreadable(run_folder / ANATOMY, error) from None


def write(table: pa.Table, path: Path) -> Path:
    """Write a table beside its place and move it there, so that no reader meets half a file."""
    with written_beside(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    return path


def append_columns(
    table: pa.Table, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """``table`` with more columns, whose values are in ``rows``."""
    for column in columns:
        field = _field(column)
        values = pa.array([row[column.name] for row in rows], field.type)
        table = table.append_column(field, values)
    return table


def tool_version() -> str:
    """This project's installed version, or "source" when it runs from a checkout."""
    try:
        return version("orchestrator")
    except PackageNotFoundError:
        return "source"


def _tool_metadata() -> dict[str, str]:
    return {"tool_version": tool_version(), "schema_version": str(SCHEMA_VERSION)}


def _build(
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, str],
    axis_of_column: Mapping[str, str] | None = None,
) -> pa.Table:
    axes = axis_of_column or {}
    fields = [_field(column, axes.get(column.name)) for column in columns]
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in rows]
        arrays.append(pa.array(values, ARROW_TYPES[column.type]))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(metadata)))


def _field(column: Column, axis: str | None = None) -> pa.Field:
    about = {"unit": column.unit, "doc": column.doc}
    if axis is not None:
        about["axis"] = axis
    return pa.field(column.name, ARROW_TYPES[column.type], metadata=about)


def _read(path: Path, columns: list[str] | None = None) -> pa.Table:
    try:
        return pq.read_table(path, columns=columns, page_checksum_verification=True)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _read_anatomies(run_folder: Path, columns: list[str] | None = None) -> pa.Table:
    path = run_folder / ANATOMY
    table = _read(path, columns=columns)
    for column in ANATOMY_COLUMNS:
        if columns is not None and column.name not in columns:
            continue
        if column.name not in table.column_names:
            raise UnreadableRunError(f"{path} has no column {column.name}")
        if table.schema.field(column.name).type != ARROW_TYPES[column.type]:
            raise UnreadableRunError(f"{path}: column {column.name} is of another type")
    return table


def _require(path: Path, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    for name in names:
        if rows and name not in rows[0]:
            raise UnreadableRunError(f"{path} is no table of this program: it has no column {name}")


def _unreadable(path: Path, error: Exception) -> UnreadableRunError:
    lines = str(error).splitlines()
    reason = lines[0] if lines else type(error).__name__
    return UnreadableRunError(f"{path} is damaged or no table of this program ({reason})")


def _metadata(table: pa.Table) -> dict[str, str]:
    raw = table.schema.metadata or {}
    return {key.decode(): value.decode() for key, value in raw.items() if key != b"ARROW:schema"}


def _axes(table: pa.Table) -> dict[str, str]:
    """Axis -> the name of its column."""
    axes = {}
    for field in table.schema:
        axis = (field.metadata or {}).get(b"axis")
        if axis is not None:
            axes[axis.decode()] = field.name
    return axes


def _columns_of(table: pa.Table, axes: Mapping[str, str]) -> tuple[Column, ...]:
    """Today's columns, with those of the table's axes in place."""
    of_axes = {}
    for name in axes.values():
        field = table.schema.field(name)
        doc = (field.metadata or {}).get(b"doc", b"").decode()
        of_axes[name] = Column(name, _type_name(field.type), doc)
    known = trial_table_columns()
    names = {column.name for column in known}
    others = [column for name, column in of_axes.items() if name not in names]
    at = len(BASE) + len(FOLLOW_UP)
    return (*known[:at], *others, *known[at:])


def _type_name(kind: pa.DataType) -> ArrowType:
    return next((name for name, known in ARROW_TYPES.items() if known == kind), "string")
