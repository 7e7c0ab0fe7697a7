"""Converts anatomies to rows of their table, and rows back to anatomies, which are checked."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from jobs import anatomy_record
from jobs.anatomy_record import Anatomy, Entry
from jobs.spec import to_json

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


def rows_of(trial_id: str, anatomy: Anatomy) -> Iterator[dict[str, Any]]:
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
