"""Writes the Parquet files of a run, with units and meanings of the columns as metadata."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.record import SCHEMA_VERSION, Column, TrialRecord
from orchestrator.storage.layout import written_beside
from orchestrator.storage.tables import anatomy_rows
from orchestrator.storage.tables.arrow import build_table, tool_metadata
from orchestrator.storage.tables.columns import ANATOMY_COLUMNS, STEP_COLUMNS
from orchestrator.storage.tables.trial_table import TrialTable


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
    rows = [row for profile in profiled for row in anatomy_rows.rows_of(*profile)]
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
