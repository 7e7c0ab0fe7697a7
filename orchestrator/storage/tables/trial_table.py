"""A run's trials as rows of plain values, whether they come from records or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Column, TrialRecord
from orchestrator.distribution import tool_version
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import (
    axis_columns,
    declared_columns,
    trial_table_columns,
)
from orchestrator.storage.tables.rows import rows_of


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialTable:
    """A run's trials as rows, with the metadata of ``trials.parquet``."""

    rows: list[dict[str, Any]]
    """One a trial, column -> value; a column that was not measured may be missing."""
    columns: tuple[Column, ...]
    axes: Mapping[str, str]
    """Axis -> the name of its column."""
    run: RunMetadata
    environments: Mapping[str, Mapping[str, Any]]
    """environment_id -> GPU model, driver and versions."""
    tool_version: str = ""
    unreadable: tuple[str, ...] = ()
    """Sentences about the run's records that are not in the table because they cannot be read."""


def table_of_records(
    records: Sequence[TrialRecord],
    run: RunMetadata | None = None,
    declared: Sequence[Column] | None = None,
    *,
    unreadable: Sequence[str] = (),
) -> TrialTable:
    """One row per trial, in the order of ``records``.

    ``declared`` are the columns of what was measured; None: those of the installed trackers.
    ``unreadable`` are sentences about records that cannot be read.
    """
    measured = declared_columns()
    if declared is not None:
        measured = tuple(declared)
    axes = axis_columns(records, measured)
    rows = rows_of(records, axes)
    # Each environment once, under the digest that its rows carry.
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
        unreadable=tuple(unreadable),
    )
