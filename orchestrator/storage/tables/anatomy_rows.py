"""Converts anatomies to rows of their table, and rows back to anatomies, which are checked."""

from __future__ import annotations

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
    figures = [*timeline.seconds]
    for entry in anatomy.entries:
        figures.append(entry.value)
        if entry.expected is not None:
            figures.append(entry.expected)
    figures += [seconds for _, seconds in timeline.phases]
    if not all(map(math.isfinite, figures)):
        return False
    return all(_is_sound_column(sizes, len(timeline.seconds)) for sizes in timeline.held.values())


def _is_sound_column(sizes: Sequence[int], length: int) -> bool:
    """Whether a timeline's column has a size for each moment, each of which a double holds."""
    # 2**53: a page computes in JavaScript's numbers, which are doubles.
    return len(sizes) == length and all(0 <= size < 2**53 for size in sizes)


def rows_of(trial_id: str, anatomy: Anatomy) -> Iterator[dict[str, Any]]:
    """A trial's anatomy in the columns of ``columns.ANATOMY_COLUMNS``."""
    for entry in anatomy.entries:
        yield {"trial_id": trial_id, **to_json(entry)}
    timeline = anatomy.timeline
    # A class of memory: its highest figure as the row's value, all of them as a list.
    for name, sizes in timeline.held.items():
        yield {
            "trial_id": trial_id,
            "part": TIMELINE,
            "name": name,
            "value": max(sizes, default=0),
            "unit": "B",
            "timeline_seconds": timeline.seconds,
            "timeline_bytes": sizes,
        }
    for name, seconds in timeline.phases:
        yield {
            "trial_id": trial_id,
            "part": BEGINNINGS,
            "name": name,
            "value": seconds,
            "unit": "s",
        }


def anatomy_of(rows: Sequence[Mapping[str, Any]]) -> Anatomy:
    """The inverse for one trial's rows.

    Raises ValueError or TypeError if they are not an anatomy.
    """
    timeline: dict[str, Any] = {"seconds": [], "held": {}, "phases": []}
    entries = []
    for row in rows:
        if row["part"] in (TIMELINE, BEGINNINGS):
            _add_to_timeline(timeline, row)
        else:
            entries.append({name: row[name] for name in Entry.__dataclass_fields__})
    anatomy = _SHAPE.validate_python({"entries": entries, "timeline": timeline})
    if not is_sound(anatomy):
        raise ValueError("an anatomy with a figure that is not finite, or with an unfit timeline")
    return anatomy


def _add_to_timeline(timeline: dict[str, Any], row: Mapping[str, Any]) -> None:
    """Add a row of memory over time, or the beginning of a phase."""
    if row["part"] == BEGINNINGS:
        timeline["phases"].append((row["name"], row["value"]))
        return
    # All rows of the part carry the same moments.
    timeline["seconds"] = row["timeline_seconds"]
    timeline["held"][row["name"]] = row["timeline_bytes"]
