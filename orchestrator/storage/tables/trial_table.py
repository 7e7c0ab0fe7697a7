"""A run's trials as rows of plain values, from records or from a file; profiles as rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from jobs import anatomy_record
from jobs.anatomy_record import Anatomy, Entry
from jobs.record import Column, TrialRecord
from jobs.spec import to_json
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
    figures += [entry.value for entry in anatomy.entries]
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
