"""Reads the run's Parquet files. A damaged or foreign file raises an error that names it."""

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.anatomy_record import Anatomy
from jobs.flags import unknown_kinds
from jobs.record import SCHEMA_VERSION, Column, Outcome
from orchestrator.labels import BATCH_NAMES, option
from orchestrator.storage.layout import ANATOMY, RECORDS, STEPS, SUPERSEDED, TRIALS, open_regular
from orchestrator.storage.run_metadata import RunMetadata, UnreadableRunError
from orchestrator.storage.tables.columns import (
    ANATOMY_COLUMNS,
    BASE,
    FOLLOW_UP,
    PRESENT_TRIAL_ID,
    is_of_type,
    is_possible,
    trial_table_columns,
)
from orchestrator.storage.tables.parquet import ARROW_TYPES, axes_of, metadata_of, type_name
from orchestrator.storage.tables.trial_table import TrialTable, anatomy_of
from orchestrator.units import count, listed

_MAY_BE_NULL = ("reason", "rule", "phase", "accumulation", "started_at")
"""Columns of ``BASE`` in which a row may have no value."""
_OUTCOMES = frozenset(outcome.value for outcome in Outcome)


def read_trials_file(path: Path) -> TrialTable:
    """A table of trials of this program. Raises FileNotFoundError or UnreadableRunError."""
    table = _read(path)
    try:
        return _trial_table(path, table)
    except UnreadableRunError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(path, error) from None


def _trial_table(path: Path, table: pa.Table) -> TrialTable:
    metadata = metadata_of(table)
    axes = axes_of(table)
    rows = table.to_pylist()
    for column in BASE:
        if rows and column.name not in rows[0]:
            lacks = f"it has no column {column.name}"
            raise UnreadableRunError(f"{path} is no table of this program: {lacks}")
    _check_values(path, rows)
    return TrialTable(
        rows=rows,
        columns=_columns_of(table, axes),
        axes=axes,
        run=RunMetadata.from_json(json.loads(metadata.get("run", "{}"))),
        environments=json.loads(metadata.get("environments", "{}")),
        tool_version=metadata.get("tool_version", ""),
        unreadable=tuple(_unknown_flags(path, rows)),
    )


def _unknown_flags(path: Path, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if kinds := unknown_kinds(rows):
        yield f"{path}: flags that this version does not know are left out: {listed(kinds, 4)}"


def trial_ids_in_file(path: Path) -> frozenset[str]:
    """The trials that have a row in a readable table of today's version: another one may give the
    trials other ids."""
    try:
        table = _read(path, columns=["trial_id"])
    except (FileNotFoundError, UnreadableRunError):
        return frozenset()
    is_of_today = metadata_of(table).get("schema_version") == str(SCHEMA_VERSION)
    return frozenset(table["trial_id"].to_pylist() if is_of_today else ())


def _check_values(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raises UnreadableRunError if a column holds what no trial measures."""
    for column in trial_table_columns():
        values = [row.get(column.name) for row in rows]
        has_gap = column in BASE and column.name not in _MAY_BE_NULL and None in values
        if has_gap or not all(is_of_type(value, column.type) for value in values):
            raise UnreadableRunError(f"{path}: column {column.name} holds a value of another type")
        if not all(is_possible(column.name, value) for value in values):
            raise UnreadableRunError(f"{path}: column {column.name} holds an impossible figure")
    if fault := next(filter(None, map(_fault_of, rows)), ""):
        raise UnreadableRunError(f"{path}: {fault}")


def _fault_of(row: Mapping[str, Any]) -> str:
    """What is wrong with a row whose values are of their types; empty if nothing is."""
    # An accumulation that is no whole number is null.
    if not all(row[name] is None or 0 < row[name] < 2**62 for name in BATCH_NAMES):
        return "a batch is not above zero, or is beyond 62 bits"
    if len(row.get("flags") or ()) != len(row.get("flag_values") or ()):
        return "a row has not as many flag_values as flags"
    if row["outcome"] not in _OUTCOMES:
        return f"the outcome {row['outcome']!r:.50} is not known"
    is_recipe = isinstance(json.loads(row["training_recipe"]), dict)
    return "" if is_recipe else "a training recipe is no mapping"


def _columns_of(table: pa.Table, axes: Mapping[str, str]) -> tuple[Column, ...]:
    todays = trial_table_columns()
    names = {column.name for column in todays}
    fields = [table.schema.field(name) for name in axes.values() if name not in names]
    own = [
        Column(field.name, type_name(field.type), (field.metadata or {}).get(b"doc", b"").decode())
        for field in fields
    ]
    present = [PRESENT_TRIAL_ID] if PRESENT_TRIAL_ID.name in table.column_names else []
    # ``trial_table_columns`` puts the axes of records at the same place.
    first = len(BASE) + len(FOLLOW_UP)
    return (*todays[:first], *own, *todays[first:], *present)


def read_steps(run_folder: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of ``steps.parquet``, one per step, with these columns; empty without a file."""
    try:
        table = _read(run_folder / STEPS, columns=list(columns))
    except FileNotFoundError:
        return []
    return table.to_pylist()


def losses_in_steps_file(run_folder: Path) -> dict[str, list[float]]:
    """Trial -> its losses step by step, from ``steps.parquet``; empty without such a file."""
    losses: dict[str, list[float]] = {}
    for row in read_steps(run_folder, ("trial_id", "loss")):
        if row["loss"] is not None:
            losses.setdefault(row["trial_id"], []).append(row["loss"])
    return losses


def read_anatomies(run_folder: Path) -> dict[str, Anatomy]:
    """Trial -> its anatomy of ``anatomy.parquet``, if there is one. Raises UnreadableRunError."""
    path = run_folder / ANATOMY
    try:
        table = _read(path)
    except FileNotFoundError:
        return {}
    for column in ANATOMY_COLUMNS:
        if column.name not in table.column_names:
            raise UnreadableRunError(f"{path} has no column {column.name}")
        if table.schema.field(column.name).type != ARROW_TYPES[column.type]:
            raise UnreadableRunError(f"{path}: column {column.name} is of another type")
    rows_by_trial: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        rows_by_trial.setdefault(row["trial_id"], []).append(row)
    try:
        return {trial: anatomy_of(rows) for trial, rows in rows_by_trial.items()}
    except (TypeError, ValueError) as error:
        raise _unreadable(path, error) from None


def _read(path: Path, columns: list[str] | None = None) -> pa.Table:
    """Raises FileNotFoundError or UnreadableRunError."""
    if not path.parent.is_dir():  # a file or a loop of links: there is no run
        raise FileNotFoundError(str(path))
    try:
        # Opened once: a running sweep puts another table in its place at any moment.
        with open_regular(path, os.O_RDONLY) as file:
            return pq.read_table(file, columns=columns, page_checksum_verification=True)
    except FileNotFoundError:
        raise FileNotFoundError(str(path)) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> UnreadableRunError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    first, *_ = reason.splitlines() or [type(error).__name__]
    return UnreadableRunError(f"{path} is damaged or no table of this program ({first})")


class FewerRowsError(RuntimeError):
    """A table would lose rows. The message says which ones, and what to do."""


def refuse_fewer_rows(
    run_folder: Path, trial_ids: Collection[str], unreadable: Sequence[str]
) -> None:
    """Raise FewerRowsError if ``trials.parquet`` has rows of trials that are not in ``trial_ids``,
    and whose records no sweep has moved aside. ``unreadable`` are sentences for the message, about
    records that cannot be read."""
    path = run_folder / TRIALS
    # The file of a second record of the same trial ends in a hyphen and a number.
    aside = (run_folder / SUPERSEDED).glob(f"*/{RECORDS}/*.json")
    superseded = {record.stem.partition("-")[0] for record in aside}
    lost = sorted(trial_ids_in_file(path) - set(trial_ids) - superseded)
    if not lost:
        return
    reason = "; ".join(unreadable) or "their records are not in the folder"
    raise FewerRowsError(
        f"{path} has {count(len(lost), 'row')} that would be lost ({listed(lost, 6)}): {reason}. "
        f"Nothing was written; {option('allow-fewer-rows')} moves today's tables to {SUPERSEDED}/ "
        "and writes smaller ones"
    )
