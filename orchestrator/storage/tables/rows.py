"""The trials table as rows of plain values: one dict per trial, column -> value."""

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from jobs import anatomy_record
from jobs.anatomy_record import Anatomy, Entry
from jobs.record import Column, TrialRecord
from jobs.spec import Purpose, TrainingRecipe, to_json
from jobs.techniques import AXES, BATCH_AXES
from orchestrator.distribution import tool_version
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import axis_columns, declared_columns, trial_table_columns

Row = Mapping[str, Any]
"""One row of the trials table."""


def row_of(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    """One record's row, with the columns of ``axes``."""
    return {
        **record.measurements,
        **_identity(record),
        **_batch(record),
        **_follow_up(record),
        **_provenance(record),
        **_axis_values(record, axes),
    }


def is_of_the_search(row: Row) -> bool:
    """Whether a row is of a trial of the search; follow-ups check others and are never ranked."""
    return row.get("purpose") in (None, Purpose.SEARCH)


def recipe_of(row: Row) -> TrainingRecipe:
    return _recipe_of_text(row["training_recipe"])


@functools.lru_cache(maxsize=1024)
def _recipe_of_text(text: str) -> TrainingRecipe:
    # A table of thousands of rows has few recipes. A recipe is frozen, so rows can share it.
    return TrainingRecipe.of(json.loads(text))


def environment_id(environment: Mapping[str, Any]) -> str:
    """A hash of the hardware and versions of a record; empty if it has none."""
    # The record of a trial that never ran has no machine.
    if not environment:
        return ""
    text = json.dumps(environment, sort_keys=True, default=str)
    # Eight hexadecimal digits are 32 bits, enough for the few environments of a run.
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _identity(record: TrialRecord) -> dict[str, Any]:
    return {
        "trial_id": record.trial_id,
        "outcome": record.outcome.value,
        "reason": record.reason,
        "rule": record.rule,
        "phase": record.phase,
        "repeat": record.spec.repeat,
        "training_recipe": json.dumps(to_json(record.spec.training_recipe), sort_keys=True),
        "gpu_model": str(record.environment.get("gpu_model") or ""),
        "environment_id": environment_id(record.environment),
    }


def _batch(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    batch: dict[str, Any] = {
        "micro_batch": spec.micro_batch,
        "accumulation": spec.accumulation,
        "effective_batch": spec.effective_batch,
    }
    planned = spec.choices.get("accumulation")
    if isinstance(planned, float):
        # The micro-batch does not divide the effective batch, so the plan has a fraction, and rules
        # the trial out. The product, without the fraction's rounding error, is the effective batch.
        batch["accumulation"] = None
        batch["effective_batch"] = round(spec.micro_batch * planned * spec.world_size)
    return batch


def _follow_up(record: TrialRecord) -> dict[str, Any]:
    spec = record.spec
    row: dict[str, Any] = {"purpose": spec.purpose.value}
    if spec.measure.memory_cap:
        row["memory_cap_bytes"] = spec.measure.memory_cap.device_bytes
    if spec.follow_up:
        row["follows_trial"] = spec.follow_up.follows_trial
        # Only tie-breaks compare several trials, round by round.
        if spec.follow_up.compared_with:
            row["compared_with"] = list(spec.follow_up.compared_with)
            row["round"] = spec.follow_up.round
    return row


def _provenance(record: TrialRecord) -> dict[str, Any]:
    provenance = record.provenance
    has_started = provenance.started_at > 0
    # The slot time outside the counted steps: start, model, warm-up, inspection and end.
    overhead_seconds = provenance.slot_seconds - record.measurements.get("counted_seconds", 0.0)
    return {
        # Arrow's timestamps are whole microseconds.
        "started_at": round(provenance.started_at * 1e6) if has_started else None,
        "slot_seconds": provenance.slot_seconds,
        "overhead_seconds": overhead_seconds if has_started else None,
        "isolation": provenance.isolation,
        "isolation_fallback": provenance.isolation_fallback or None,
        "node": provenance.node or None,
        "cpus": provenance.cpus,
        "host_memory_bytes": provenance.host_memory_bytes,
        "log": provenance.log,
        "log_file": provenance.log_file or None,
    }


def _axis_values(record: TrialRecord, axes: Mapping[str, Column]) -> dict[str, Any]:
    # A record of another sweep may lack an argument: its value is then None. A record that is older
    # than a technique's axis ran the default.
    values: dict[str, Any] = {}
    for axis, column in axes.items():
        if axis in BATCH_AXES:
            continue
        default = AXES[axis].default if axis in AXES else None
        value = record.spec.choices.get(axis, default)
        # The column of an argument with values of several types holds text.
        if column.type == "string" and value is not None:
            value = str(value)
        values[column.name] = value
    return values


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


TIMELINE = "timeline"
"""The part with the memory over one step: a row for each class of memory."""
BEGINNINGS = "timeline phases"
"""The part with the beginnings of that step's phases."""
PARTS: Mapping[str, str] = {
    **{str(part): meaning for part, meaning in anatomy_record.PARTS.items()},
    TIMELINE: "Memory over one step (the last two micro-batches, where it has more), a row for "
    "each kind: the highest moment of each stretch of time",
    BEGINNINGS: "When each phase of that step began, in order",
}
"""Part of the table -> what it is; the last two are not entries of an anatomy."""

_SHAPE = TypeAdapter(Anatomy)


def is_sound(anatomy: Anatomy) -> bool:
    """Whether a page can show it: figures finite, and a timeline whose columns are equally long."""
    timeline = anatomy.timeline
    figures = [*timeline.seconds, *(seconds for _, seconds in timeline.phases)]
    for entry in anatomy.entries:
        figures += [entry.value, 0.0 if entry.expected is None else entry.expected]
    # 2**53: a page computes in JavaScript's numbers, which are doubles.
    return all(map(math.isfinite, figures)) and all(
        len(sizes) == len(timeline.seconds) and all(0 <= size < 2**53 for size in sizes)
        for sizes in timeline.held.values()
    )


def anatomy_rows(trial_id: str, anatomy: Anatomy) -> Iterator[dict[str, Any]]:
    """A trial's anatomy in the columns of ``columns.ANATOMY_COLUMNS``."""
    for entry in anatomy.entries:
        yield {"trial_id": trial_id, **to_json(entry)}
    timeline = anatomy.timeline
    # A class of memory: its highest figure as the row's value, all of them as a list.
    for name, sizes in timeline.held.items():
        figures = {"value": max(sizes, default=0), "unit": "B"}
        over_time = {"timeline_seconds": timeline.seconds, "timeline_bytes": sizes}
        yield {"trial_id": trial_id, "part": TIMELINE, "name": name, **figures, **over_time}
    for name, seconds in timeline.phases:
        figures = {"value": seconds, "unit": "s"}
        yield {"trial_id": trial_id, "part": BEGINNINGS, "name": name, **figures}


def anatomy_of(rows: Sequence[Mapping[str, Any]]) -> Anatomy:
    """The inverse for one trial's rows. Raises ValueError or TypeError if they are no anatomy."""
    timeline: dict[str, Any] = {"seconds": [], "held": {}, "phases": []}
    entries = []
    for row in rows:
        if row["part"] == BEGINNINGS:
            timeline["phases"].append((row["name"], row["value"]))
        elif row["part"] == TIMELINE:
            # All rows of the part carry the same moments.
            timeline["seconds"] = row["timeline_seconds"]
            timeline["held"][row["name"]] = row["timeline_bytes"]
        else:
            entries.append({name: row[name] for name in Entry.__dataclass_fields__})
    anatomy = _SHAPE.validate_python({"entries": entries, "timeline": timeline})
    if not is_sound(anatomy):
        raise ValueError("an anatomy with a figure that is not finite, or with an unfit timeline")
    return anatomy
