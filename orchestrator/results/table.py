"""Records as Arrow tables: one row a trial, one row a step, with units, config and environments in the metadata."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.record import ArrowType, Column, TrialRecord
from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.results.frontier import Point
from orchestrator.results.run import STEPS, TRIALS, Run, read_records, read_run

ARROW_TYPES: dict[ArrowType, pa.DataType] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "list<double>": pa.list_(pa.float64()),
    "list<string>": pa.list_(pa.string()),
}

BASE: tuple[Column, ...] = (
    Column(name="trial_id", type="string", doc="Digest of everything that can change the trial's result."),
    Column(name="outcome", type="string", doc="How the trial ended; only ok carries measurements to rank."),
    Column(name="reason", type="string", doc="Why it did not end ok, in one sentence; empty when ok."),
    Column(name="rule", type="string", doc="The rule that ruled the trial out or skipped it."),
    Column(name="phase", type="string", doc="Where the trial was when it ended."),
    Column(name="repeat", type="int64", doc="Number of this repeat of the configuration, from 0."),
    Column(name="equivalence", type="string", doc="Trials with equal values train the same way."),
    Column(name="micro_batch", type="int64", unit="samples", doc="Samples per forward pass."),
    Column(name="accumulation", type="int64", unit="passes", doc="Forward passes per optimizer step."),
    Column(name="effective_batch", type="int64", unit="samples", doc="Samples per optimizer step."),
    Column(name="gpu_model", type="string", doc="The accelerator's name; empty on a CPU."),
    Column(name="environment_id", type="string", doc="Digest of hardware and versions; see the file's metadata."),
    Column(name="started_at", type="timestamp", unit="UTC", doc="When the trial started; null if it never did."),
    Column(name="wall_seconds", type="float64", unit="s", doc="From fork to exit: what the trial cost its slot."),
    Column(name="isolation", type="string", doc="fork: child of a preloaded parent; fresh: a new interpreter."),
    Column(name="log", type="string", doc="The trial's last lines of output when it did not end well."),
)

FRONTIER_COLUMNS: tuple[Column, ...] = (
    Column(name="frontier_memory_bytes", type="int64", unit="bytes", doc="The largest memory of its repeats."),
    Column(
        name="frontier_samples_per_second", type="float64", unit="samples/s", doc="The median speed of its repeats."
    ),
    Column(name="repeats", type="int64", doc="Trials combined into this row."),
    Column(name="across_trainings", type="bool", doc="On the frontier among all trainings too, not only its own."),
)

STEP_COLUMNS: tuple[Column, ...] = (
    Column(name="trial_id", type="string", doc="The trial, as in trials.parquet."),
    Column(name="step", type="int64", doc="Optimizer step, from 0, warm-up included."),
    Column(name="counted", type="bool", doc="Whether the step counts; false during warm-up."),
    Column(name="step_seconds", type="float64", unit="s", doc="Wall time from the end of one step to the next."),
    Column(name="device_seconds", type="float64", unit="s", doc="The device's own time for the step."),
    Column(name="data_seconds", type="float64", unit="s", doc="Time spent waiting for the step's micro-batches."),
    Column(name="loss", type="float64", doc="Training loss of the step."),
)


def declared_columns() -> tuple[Column, ...]:
    """The columns that the trackers and the inspection declare, in the order of measuring."""
    trackers = importlib.import_module("jobs.trackers").TRACKERS
    inspected: tuple[Column, ...] = importlib.import_module("jobs.inspection").COLUMNS
    return (*(column for tracker in trackers for column in tracker.columns), *inspected)


def axis_columns(records: Sequence[TrialRecord], taken: Iterable[str] = ()) -> dict[str, Column]:
    """Axis -> its column, for every axis chosen on. An axis whose name is ``taken`` becomes ``argument_<name>``."""
    values: dict[str, list[Choice]] = {}
    for record in records:
        for axis, value in record.spec.choices.items():
            values.setdefault(axis, []).append(value)
    base, reserved = {column.name: column for column in BASE}, {*taken, *(column.name for column in BASE)}
    columns: dict[str, Column] = {}
    for axis, chosen in values.items():
        if axis in ("micro_batch", "accumulation"):
            columns[axis] = base[axis]
        else:
            name = f"argument_{axis}" if axis in reserved else axis
            doc = AXES[axis].doc if axis in AXES else f"TrainingArguments.{axis}"
            columns[axis] = Column(name=name, type=_type_of(axis, chosen), doc=doc)
    return columns


def _type_of(axis: str, values: Iterable[Choice]) -> ArrowType:
    if axis in AXES:
        return "int64" if AXES[axis].integer_argument else "string"
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int}:
        return "int64"
    return "float64" if kinds and kinds <= {int, float} else "string"


def columns(declared: Sequence[Column] | None = None, records: Sequence[TrialRecord] = ()) -> tuple[Column, ...]:
    """The trials table's columns: identity, the axes that ``records`` chose on, then what was measured."""
    measured = declared_columns() if declared is None else tuple(declared)
    axes = axis_columns(records, (column.name for column in measured)).values()
    known = {column.name for column in BASE}
    return (*BASE, *(column for column in axes if column.name not in known), *measured)


def trials_table(
    records: Sequence[TrialRecord], declared: Sequence[Column] | None = None, run: Run | None = None
) -> pa.Table:
    """One row a trial, in the order of ``records``; what was not measured is null.

    The fields carry ``unit``, ``doc`` and, for an axis, ``axis``; the schema carries ``run``, ``environments`` and
    ``tool_version`` as JSON. Raises pyarrow.ArrowInvalid when a measurement is not of its declared type.
    """
    measured = declared_columns() if declared is None else tuple(declared)
    axes = axis_columns(records, (column.name for column in measured))
    environments = {_environment_id(record): dict(record.environment) for record in records if record.environment}
    rows = [{**record.measurements, **_base_row(record), **_axis_row(record, axes)} for record in records]
    metadata = {
        "run": json.dumps(dataclasses.asdict(run or Run()), sort_keys=True),
        "config": json.dumps(dict((run or Run()).config), sort_keys=True),
        "command": (run or Run()).command,
        "environments": json.dumps(environments, sort_keys=True),
        "tool_version": tool_version(),
    }
    named = {column.name: axis for axis, column in axes.items()}
    return _build(columns(measured, records), rows, metadata, named)


def steps_table(records: Sequence[TrialRecord]) -> pa.Table:
    """One row for every optimizer step of every trial, warm-up included; seconds as measured, missing ones null."""
    rows: list[dict[str, Any]] = []
    for record in records:
        warm_up = record.measurements.get("warmup_steps", record.spec.measure.warmup_steps)
        for step in range(max(map(len, record.steps.values()), default=0)):
            row = {name: values[step] for name, values in record.steps.items() if step < len(values)}
            rows.append({**row, "trial_id": record.trial_id, "step": step, "counted": step >= warm_up})
    return _build(STEP_COLUMNS, rows, {"tool_version": tool_version()}, {})


def _build(
    schema: Sequence[Column], rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, str], axes: Mapping[str, str]
) -> pa.Table:
    fields, arrays = [], []
    for column in schema:
        about = {"unit": column.unit, "doc": column.doc}
        if column.name in axes:
            about["axis"] = axes[column.name]
        fields.append(pa.field(column.name, ARROW_TYPES[column.type], metadata=about))
        arrays.append(pa.array([row.get(column.name) for row in rows], ARROW_TYPES[column.type]))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(metadata)))


def _base_row(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    return {
        "trial_id": record.trial_id,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "rule": record.rule,
        "phase": record.phase,
        "repeat": spec.repeat,
        "equivalence": spec.equivalence,
        "micro_batch": spec.micro_batch,
        "accumulation": spec.accumulation,
        "effective_batch": spec.effective_batch,
        "gpu_model": str(record.environment.get("gpu_model") or ""),
        "environment_id": _environment_id(record),
        "started_at": round(record.started_at * 1e6) if record.started_at else None,
        "wall_seconds": record.wall_seconds,
        "isolation": record.isolation,
        "log": record.log,
    }


def _axis_row(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    own = {axis: value for axis, value in record.spec.choices.items() if axis not in ("micro_batch", "accumulation")}
    typed = {axes[axis].name: (value, axes[axis].type) for axis, value in own.items()}
    return {name: str(v) if kind == "string" and v is not None else v for name, (v, kind) in typed.items()}


def _environment_id(record: TrialRecord) -> str:
    if not record.environment:
        return ""
    return hashlib.sha256(json.dumps(record.environment, sort_keys=True, default=str).encode()).hexdigest()[:8]


def tool_version() -> str:
    """This project's installed version, or "source" when it runs from a checkout."""
    try:
        return version("orchestrator")
    except PackageNotFoundError:
        return "source"


def load(run_folder: Path, *, save_tables: bool = False) -> pa.Table:
    """The run's trials: from its records, or from ``trials.parquet`` where only that was kept.

    ``save_tables`` writes what the records say to the folder's ``trials.parquet`` and ``steps.parquet``.
    Raises FileNotFoundError when the folder holds neither.
    """
    records = read_records(run_folder)
    if not records:
        return read(run_folder / TRIALS)
    trials = trials_table(records, run=read_run(run_folder))
    if save_tables:
        write(trials, run_folder / TRIALS)
        write(steps_table(records), run_folder / STEPS)
    return trials


def frontier_table(trials: pa.Table, fronts: Sequence[tuple[Point, bool]]) -> pa.Table:
    """The frontier's configurations as rows of ``trials``, with what their repeats combined to.

    Each point comes with whether it also stands on the frontier across trainings.
    """
    place = {trial_id: index for index, trial_id in enumerate(trials["trial_id"].to_pylist())}
    table = trials.take([place[point.trial_ids[0]] for point, _ in fronts])
    combined: dict[str, list[Any]] = {
        "frontier_memory_bytes": [point.memory_bytes for point, _ in fronts],
        "frontier_samples_per_second": [point.samples_per_second for point, _ in fronts],
        "repeats": [point.repeats for point, _ in fronts],
        "across_trainings": [across for _, across in fronts],
    }
    for column in FRONTIER_COLUMNS:
        field = pa.field(column.name, ARROW_TYPES[column.type], metadata={"unit": column.unit, "doc": column.doc})
        table = table.append_column(field, pa.array(combined[column.name], field.type))
    return table


def write(table: pa.Table, path: Path) -> Path:
    """Write a table beside its place and move it there, so that no reader meets half a file."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    pq.write_table(table, beside, compression="zstd")
    beside.replace(path)
    return path


def read(path: Path) -> pa.Table:
    """A table this project wrote. Raises FileNotFoundError or pyarrow.ArrowInvalid."""
    return pq.read_table(path)


def run_of(table: pa.Table) -> Run:
    """What was run, from the table's own metadata."""
    return Run.from_json(json.loads((table.schema.metadata or {}).get(b"run", b"{}")))


def environments_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    """environment_id -> the environment's own words and versions."""
    found: dict[str, dict[str, Any]] = json.loads((table.schema.metadata or {}).get(b"environments", b"{}"))
    return found


def axes_of(table: pa.Table) -> dict[str, str]:
    """Axis -> the name of its column."""
    tagged = {field.name: (field.metadata or {}).get(b"axis") for field in table.schema}
    return {axis.decode(): name for name, axis in tagged.items() if axis is not None}
