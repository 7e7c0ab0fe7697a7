"""Records as Arrow tables: one row a trial, one row a step, with units, config and environments in the metadata."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.anatomy_record import Anatomy
from jobs.record import ArrowType, Column, TrialRecord
from orchestrator.analysis import compile_break_even, loss_parity
from orchestrator.analysis.pareto import TRAINS_DIFFERENTLY, Point, is_the_searchs
from orchestrator.storage.run_metadata import (
    ANATOMY,
    STEPS,
    TRIALS,
    Run,
    UnreadableRunError,
    read_records,
    read_run,
    written_beside,
)
from orchestrator.storage.tables import anatomy_rows
from orchestrator.storage.tables.columns import (
    ANATOMY_COLUMNS,
    BASE,
    FRONTIER_COLUMNS,
    STEP_COLUMNS,
    axis_columns,
    columns,
    declared_columns,
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


def trials_table(
    records: Sequence[TrialRecord], declared: Sequence[Column] | None = None, run: Run | None = None
) -> pa.Table:
    """One row a trial, in the order of ``records``; what was not measured is null.

    The fields carry ``unit``, ``doc`` and, for an axis, ``axis``; the schema carries ``run``, ``environments`` and
    ``tool_version`` as JSON. Raises pyarrow.ArrowInvalid when a measurement is not of its declared type.
    """
    measured = declared_columns() if declared is None else tuple(declared)
    axes = axis_columns(records, (column.name for column in measured))
    rows = rows_of(records, axes)
    environments = {
        row["environment_id"]: dict(record.environment)
        for row, record in zip(rows, records, strict=True)
        if record.environment
    }
    metadata = {
        "run": json.dumps(dataclasses.asdict(run or Run()), sort_keys=True),
        "config": json.dumps(dict((run or Run()).config), sort_keys=True),
        "command": (run or Run()).command,
        "environments": json.dumps(environments, sort_keys=True),
        "tool_version": tool_version(),
    }
    named = {column.name: axis for axis, column in axes.items()}
    own = [row for row in rows if is_the_searchs(row)]
    pays = compile_break_even.break_even_steps(
        own, {axis: column.name for axis, column in axes.items()}
    )
    for row in rows:
        row["compile_break_even_steps"] = pays.get(row["trial_id"])
    schema = columns(measured, records)
    return _build(schema, _columnar(schema, rows), metadata, named)


def steps_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every optimizer step of every trial, warm-up included; seconds as measured, missing ones null."""
    values: dict[str, list[Any]] = {column.name: [] for column in STEP_COLUMNS}
    for record in records:
        steps = max(map(len, record.steps.values()), default=0)
        warm_up = record.measurements.get("warmup_steps", record.spec.measure.warmup_steps)
        values["trial_id"] += [record.trial_id] * steps
        values["step"] += range(steps)
        values["counted"] += [step >= warm_up for step in range(steps)]
        for name in values.keys() - {"trial_id", "step", "counted"}:
            own = record.steps.get(name, ())
            values[name] += [*own, *[None] * (steps - len(own))]
    return _build(STEP_COLUMNS, values, {"tool_version": tool_version()}, {})


def anatomy_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every figure of every trial that was taken apart, and for every class of memory over its step."""
    known = ((record.trial_id, record.anatomy) for record in records)
    rows = [
        row
        for trial_id, anatomy in known
        if anatomy
        for row in anatomy_rows.rows_of(trial_id, anatomy)
    ]
    return _build(
        ANATOMY_COLUMNS, _columnar(ANATOMY_COLUMNS, rows), {"tool_version": tool_version()}, {}
    )


def _columnar(schema: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {column.name: [row.get(column.name) for row in rows] for column in schema}


def _build(
    schema: Sequence[Column],
    values: Mapping[str, list[Any]],
    metadata: Mapping[str, str],
    axes: Mapping[str, str],
) -> pa.Table:
    fields, arrays = [], []
    for column in schema:
        about = {"unit": column.unit, "doc": column.doc}
        if column.name in axes:
            about["axis"] = axes[column.name]
        fields.append(pa.field(column.name, ARROW_TYPES[column.type], metadata=about))
        arrays.append(pa.array(values[column.name], ARROW_TYPES[column.type]))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(metadata)))


def tool_version() -> str:
    """This project's installed version, or "source" when it runs from a checkout."""
    try:
        return version("orchestrator")
    except PackageNotFoundError:
        return "source"


def load(run_folder: Path, *, save_tables: bool = False) -> pa.Table:
    """The run's trials: from its records, or from ``trials.parquet`` where only that was kept.

    Rows that train differently than they should (see ``guard``) say so among their warnings. ``save_tables`` writes
    what the records say to the folder's ``trials.parquet``, ``steps.parquet`` and ``anatomy.parquet``.
    Raises FileNotFoundError when the folder holds neither.
    """
    records = read_records(run_folder)
    if not records:
        return guarded(read(run_folder / TRIALS), losses_of(run_folder, records))
    trials = guarded(
        trials_table(records, run=read_run(run_folder)), losses_of(run_folder, records)
    )
    if save_tables:
        write(trials, run_folder / TRIALS)
        write(steps_table(records), run_folder / STEPS)
        write(anatomy_table(records), run_folder / ANATOMY)
    return trials


def guarded(trials: pa.Table, losses: Mapping[str, Sequence[float]]) -> pa.Table:
    """``trials`` with what the numerical guard finds in ``losses`` (per trial and step) among the warnings."""
    axes = axes_of(trials)
    read_by_guard = {
        "trial_id",
        "outcome",
        "equivalence",
        "environment_id",
        "effective_batch",
        *axes.values(),
    }
    if not losses or not {*read_by_guard, "accumulation", "warnings"} <= {*trials.column_names}:
        return trials
    named = {*read_by_guard, "accumulation", "purpose"} & {*trials.column_names}
    rows = trials.select(sorted(named)).to_pylist()
    own = [row for row in rows if is_the_searchs(row)]
    found = {
        finding.trial_id: [finding.warning] for finding in loss_parity.findings(own, losses, axes)
    }
    said = trials["warnings"].to_pylist()
    for place, (row, texts) in enumerate(zip(rows, said, strict=True)):
        if texts is not None:
            earlier = [text for text in texts if not text.startswith(f"{TRAINS_DIFFERENTLY}:")]
            said[place] = earlier + found.get(row["trial_id"], [])
    place = trials.column_names.index("warnings")
    return trials.set_column(
        place, trials.schema.field(place), pa.array(said, trials.schema.field(place).type)
    )


def losses_of(
    run_folder: Path, records: Sequence[TrialRecord] | None = None
) -> dict[str, list[float]]:
    """Trial -> its losses step by step, from ``records`` (None: the folder's), or from ``steps.parquet``."""
    known = read_records(run_folder) if records is None else records
    if known or not (run_folder / STEPS).exists():
        return {record.trial_id: list(record.steps.get("loss", ())) for record in known}
    losses: dict[str, list[float]] = {}
    named = ["trial_id", "loss"]
    steps = _read(run_folder / STEPS, named, columns=named)
    for trial_id, loss in zip(
        steps["trial_id"].to_pylist(), steps["loss"].to_pylist(), strict=True
    ):
        if loss is not None:
            losses.setdefault(trial_id, []).append(loss)
    return losses


def trials_taken_apart(run_folder: Path) -> frozenset[str]:
    """The trials whose anatomy is in the folder's ``anatomy.parquet``; none where there is no such file."""
    try:
        return frozenset(
            _read_anatomies(run_folder, columns=["trial_id"])["trial_id"].unique().to_pylist()
        )
    except FileNotFoundError:
        return frozenset()


def read_anatomies(run_folder: Path, trial_ids: Collection[str]) -> dict[str, Anatomy]:
    """Trial -> its anatomy, from ``anatomy.parquet``. Raises UnreadableRunError: torn or foreign."""
    if not trial_ids:
        return {}
    table = _read_anatomies(run_folder)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in table.filter(pc.field("trial_id").isin(list(trial_ids))).to_pylist():
        rows.setdefault(row["trial_id"], []).append(row)
    try:
        return {trial_id: anatomy_rows.anatomy_of(own) for trial_id, own in rows.items()}
    except (TypeError, ValueError):
        raise UnreadableRunError(
            f"{run_folder / ANATOMY} holds what is no anatomy of this program"
        ) from None


def anatomies_of(run_folder: Path) -> dict[str, Anatomy]:
    """Trial -> its anatomy, from the folder's records, or from ``anatomy.parquet`` where only tables were kept."""
    if records := read_records(run_folder):
        return {record.trial_id: record.anatomy for record in records if record.anatomy}
    return read_anatomies(run_folder, trials_taken_apart(run_folder))


def _read_anatomies(run_folder: Path, columns: list[str] | None = None) -> pa.Table:
    named = [column for column in ANATOMY_COLUMNS if columns is None or column.name in columns]
    table = _read(run_folder / ANATOMY, [column.name for column in named], columns=columns)
    if any(table.schema.field(column.name).type != ARROW_TYPES[column.type] for column in named):
        raise UnreadableRunError(
            f"{run_folder / ANATOMY} is no table of this program: its columns are of other types"
        )
    return table


def frontier_table(trials: pa.Table, fronts: Sequence[tuple[Point, bool, bool]]) -> pa.Table:
    """The frontier's configurations as rows of ``trials``, with what their repeats combined to.

    Each point comes with whether it stands on its kind of training's frontier, and on the one across trainings.
    """
    first = pa.array([point.trial_ids[0] for point, _, _ in fronts], trials["trial_id"].type)
    table = trials.take(pc.index_in(first, value_set=trials["trial_id"]))
    combined: dict[str, list[Any]] = {
        "frontier_memory_bytes": [point.memory_bytes for point, _, _ in fronts],
        "frontier_samples_per_second": [point.samples_per_second for point, _, _ in fronts],
        "repeats": [point.repeats for point, _, _ in fronts],
        "training": [point.training for point, _, _ in fronts],
        "on_frontier": [own for _, own, _ in fronts],
        "across_trainings": [across for _, _, across in fronts],
    }
    for column in FRONTIER_COLUMNS:
        field = pa.field(
            column.name, ARROW_TYPES[column.type], metadata={"unit": column.unit, "doc": column.doc}
        )
        table = table.append_column(field, pa.array(combined[column.name], field.type))
    return table


def write(table: pa.Table, path: Path) -> Path:
    """Write a table beside its place and move it there, so that no reader meets half a file."""
    with written_beside(path) as beside:
        pq.write_table(table, beside, compression="zstd", write_page_checksum=True)
    return path


def read(path: Path) -> pa.Table:
    """A table of trials that this project wrote. Raises FileNotFoundError, or UnreadableRunError: torn or foreign."""
    return _read(path, [column.name for column in BASE])


def _read(path: Path, needed: Sequence[str], columns: list[str] | None = None) -> pa.Table:
    try:
        table = pq.read_table(path, columns=columns, page_checksum_verification=True)
        run_of(table), environments_of(table), axes_of(table)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnreadableRunError(f"{path} is torn or no table of this program ({reason})") from None
    if missing := [name for name in needed if name not in table.column_names]:
        raise UnreadableRunError(
            f"{path} is no table of this program: it has no column {missing[0]}"
        )
    return table


def run_of(table: pa.Table) -> Run:
    """What was run, from the table's own metadata."""
    return Run.from_json(json.loads((table.schema.metadata or {}).get(b"run", b"{}")))


def environments_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    """environment_id -> the environment's own words and versions."""
    found: dict[str, dict[str, Any]] = json.loads(
        (table.schema.metadata or {}).get(b"environments", b"{}")
    )
    return found


def axes_of(table: pa.Table) -> dict[str, str]:
    """Axis -> the name of its column."""
    tagged = {field.name: (field.metadata or {}).get(b"axis") for field in table.schema}
    return {axis.decode(): name for name, axis in tagged.items() if axis is not None}
