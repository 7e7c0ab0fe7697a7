"""A run's trials as rows of plain values, whether they come from records or from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Column, TrialRecord
from orchestrator.distribution import tool_version
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import axis_columns, declared_columns, trial_table_columns
from orchestrator.storage.tables.rows import environment_id, row_of


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
    """One row per trial, in the order of ``records``. ``declared`` are the columns of what was
    measured; None: those of the installed trackers."""
    measured = declared_columns() if declared is None else declared
    axes = axis_columns(records, measured)
    environments = (record.environment for record in records if record.environment)
    return TrialTable(
        rows=[row_of(record, axes) for record in records],
        columns=trial_table_columns(records, measured),
        axes={axis: column.name for axis, column in axes.items()},
        run=run or RunMetadata(),
        environments={environment_id(one): dict(one) for one in environments},
        tool_version=tool_version(),
        unreadable=tuple(unreadable),
    )
