"""Anatomies as rows of their table, and back, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from jobs import anatomy_record
from jobs.anatomy_record import Anatomy, Entry
from jobs.spec import to_json

TIMELINE, BEGINNINGS = "timeline", "timeline phases"
PARTS: Mapping[str, str] = {
    **{str(part): meaning for part, meaning in anatomy_record.PARTS.items()},
    TIMELINE: "Memory over one step (the last two micro-batches, where it has more), a row for "
    "each kind: the highest moment of each stretch of time",
    BEGINNINGS: "When each phase of that step began, in order",
}
"""Part of the table -> what it is; the last two are no entries of an anatomy."""

_SHAPE = TypeAdapter(Anatomy)


def is_sound(anatomy: Anatomy) -> bool:
    """Whether a page can show it: figures finite, and a timeline whose columns are equally long."""
    line = anatomy.timeline
    figures = [one.value for one in anatomy.entries]
    figures += [one.expected for one in anatomy.entries if one.expected is not None]
    figures += [*line.seconds, *(seconds for _, seconds in line.phases)]
    sizes = [size for held in line.held.values() for size in held]
    return (
        all(map(math.isfinite, figures))
        and all(0 <= size < 2**53 for size in sizes)
        and {len(held) for held in line.held.values()} <= {len(line.seconds)}
    )


def rows_of(trial_id: str, anatomy: Anatomy) -> Iterator[dict[str, Any]]:
    """A trial's anatomy in the columns of ``columns.ANATOMY_COLUMNS``."""
    for one in anatomy.entries:
        yield {"trial_id": trial_id, **to_json(one)}
    line = anatomy.timeline
    for name, held in line.held.items():
        moments = {"timeline_seconds": line.seconds, "timeline_bytes": held}
        most = {"value": max(held, default=0), "unit": "B"}
        yield {"trial_id": trial_id, "part": TIMELINE, "name": name, **most, **moments}
    for name, seconds in line.phases:
        yield {
            "trial_id": trial_id,
            "part": BEGINNINGS,
            "name": name,
            "value": seconds,
            "unit": "s",
        }


def anatomy_of(rows: Sequence[Mapping[str, Any]]) -> Anatomy:
    """The inverse for one trial's rows.

    Raises ValueError or TypeError where they are no anatomy.
    """
    fields = tuple(Entry.__dataclass_fields__)
    entries, held, seconds, phases = [], {}, [], []
    for row in rows:
        if row["part"] == TIMELINE:
            seconds, held[row["name"]] = row["timeline_seconds"], row["timeline_bytes"]
        elif row["part"] == BEGINNINGS:
            phases.append((row["name"], row["value"]))
        else:
            entries.append({name: row[name] for name in fields})
    found = _SHAPE.validate_python(
        {"entries": entries, "timeline": {"seconds": seconds, "held": held, "phases": phases}}
    )
    if not is_sound(found):
        raise ValueError("an anatomy with figures that are none")
    return found
