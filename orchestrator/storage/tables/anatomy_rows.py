"""Trials taken apart: as rows of their table and back, doubted, and whose anatomy tells of which trial."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pydantic import TypeAdapter

from jobs import anatomy_record
from jobs.anatomy.time.operations import IDLE
from jobs.anatomy_record import Anatomy, Entry
from jobs.spec import to_json
from orchestrator.analysis.pareto import Row

PURPOSE = "anatomy"
"""Of the trials that are run again to be taken apart."""
TIMELINE, BEGINNINGS = "timeline", "timeline phases"
PARTS: Mapping[str, str] = {
    **{str(part): meaning for part, meaning in anatomy_record.PARTS.items()},
    TIMELINE: "memory over one step (of more than two micro-batches the last two), a row for each class: of every "
    "stretch of time the highest moment",
    BEGINNINGS: "when each phase of that step began, in order",
}
"""Part of the table -> what it is; the last two are no entries of an anatomy."""

SIZES = (
    ("weights", "model_allocated_bytes"),
    ("optimizer states", "optimizer_state_bytes"),
    ("gradients, activations, buffers", "peak_allocated_bytes"),
    ("cached by the allocator", "peak_reserved_bytes"),
    ("context and libraries", "device_used_bytes"),
)
"""Parts of a device's peak memory, from the inside out: each ends where its column says."""

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
    """The inverse for one trial's rows. Raises ValueError or TypeError where they are no anatomy."""
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


def tellers(
    configurations: Iterable[Sequence[str]], follow_ups: Iterable[Row], taken_apart: Collection[str]
) -> dict[str, str]:
    """First trial of each configuration -> the trial whose anatomy tells of it: one of its own, or one that followed.

    ``taken_apart`` are the trials that have an anatomy; configurations without are left out.
    """
    followed: dict[str, list[str]] = {}
    for row in follow_ups:
        if row.get("purpose") == PURPOSE and row["trial_id"] in taken_apart:
            followed.setdefault(row["follows"], []).append(row["trial_id"])
    found: dict[str, str] = {}
    for own in configurations:
        candidates = [trial for trial in own if trial in taken_apart]
        candidates += [trial for one in own for trial in followed.get(one, ())]
        if candidates:
            found[own[0]] = candidates[0]
    return found


def at_speed_of(anatomy: Anatomy, row: Row) -> Anatomy:
    """A follow-up's anatomy for the trial that it followed, whose counted steps are more: idle time, rate and MFU."""
    if not (seconds := row.get("step_seconds_median")):
        return anatomy
    work = sum(spent for name, spent in anatomy.values("operations").items() if name != IDLE)
    figures: dict[tuple[str, str], float] = {("operations", IDLE): max(0.0, seconds - work)}
    efficiency = anatomy.values("efficiency")
    if rate := efficiency.get("rate"):
        figures["efficiency", "rate"] = efficiency["model flop"] / seconds
        figures["efficiency", "MFU"] = (
            efficiency.get("MFU", 0.0) * figures["efficiency", "rate"] / rate
        )
    entries = (
        replace(one, value=figures.get((one.part, one.name), one.value)) for one in anatomy.entries
    )
    return replace(anatomy, entries=tuple(entries))


def sizes_of(row: Row) -> dict[str, int] | None:
    """Memory at the device's peak of a trial that was not taken apart, by ``SIZES``; None where it does not add up.

    An optimizer's state that was offloaded is not on the device.
    """
    weights, *ends = (row.get(column) for _, column in SIZES if column != "optimizer_state_bytes")
    state = (
        0
        if row.get("offload_optimizer_device") not in (None, "none")
        else row.get("optimizer_state_bytes")
    )
    if weights is None or state is None or None in ends:
        return None
    sizes = [weights, state, *(end - start for start, end in pairwise([weights + state, *ends]))]
    return (
        {name: size for (name, _), size in zip(SIZES, sizes, strict=True)}
        if min(sizes) >= 0
        else None
    )
