"""Writes the Parquet files of a run.

The metadata of a field hold its unit and meaning. The metadata of the schema describe the run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.record import SCHEMA_VERSION, Column, TrialRecord
from orchestrator.storage.layout import written_beside
from orchestrator.storage.tables import anatomy_rows
from orchestrator.storage.tables.arrow import build_table, field_of, tool_metadata
from orchestrator.storage.tables.columns import ANATOMY_COLUMNS, STEP_COLUMNS
from orchestrator.storage.tables.trial_table import TrialTable


def arrow_table(trials: TrialTable) -> pa.Table:
    """The trials as an Arrow table, ready to be written.

    Fields carry ``unit``, ``doc`` and, for an axis, ``axis``; the schema carries ``run``,
    ``config``, ``command``, ``environments``, ``tool_version`` and ``schema_version``.

    Raises pyarrow.ArrowInvalid if a value is not of its declared type.
    """
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
    """One row for every optimizer step of every trial, warm-up included.

    A value that a step does not have is null.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        rows += _step_rows(record)
    return build_table(STEP_COLUMNS, rows, tool_metadata())


def _step_rows(record: TrialRecord) -> list[dict[str, Any]]:
    steps = max(map(len, record.steps.values()), default=0)
    # The trial may have extended the warm-up that it was given. Its own count says how far.
    warmup_steps = record.measurements.get("warmup_steps", record.spec.measure.warmup_steps)
    rows = []
    for step in range(steps):
        row = {"trial_id": record.trial_id, "step": step, "counted": step >= warmup_steps}
        for name, values in record.steps.items():
            # A trial that ended within a step has no loss of it.
            row[name] = None
            if step < len(values):
                row[name] = values[step]
        rows.append(row)
    return rows


def anatomy_table(records: Sequence[TrialRecord]) -> pa.Table:
    """The anatomies of all profiled trials, one row for every figure.

    The memory over a step has one row for every kind of memory.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.anatomy is not None:
            rows += anatomy_rows.rows_of(record.trial_id, record.anatomy)
    return build_table(ANATOMY_COLUMNS, rows, tool_metadata())


def append_columns(
    table: pa.Table, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> pa.Table:
    """``table`` with more columns, whose values are in ``rows``."""
    for column in columns:
        field = field_of(column)
        values = pa.array([row[column.name] for row in rows], field.type)
        table = table.append_column(field, values)
    return table


def write(table: pa.Table, path: Path) -> Path:
    """Write a table under another name and move it into place.

    So no reader ever finds an incomplete file. Returns ``path``.
    """
    with written_beside(path) as partial:
        # With checksums a reader notices a damaged page.
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    return path
