"""An anatomy as plain values for the page's script: bytes, seconds, and the timeline in MiB."""

from __future__ import annotations

from typing import Any

from jobs.anatomy.time.phases import BACKWARD_TO_FORWARD
from jobs.anatomy_record import Anatomy, Part, Timeline
from orchestrator.units import MIB, number

_PARTS: tuple[Part, ...] = ("memory", "operations", "modules", "step")


def plain_anatomy(anatomy: Anatomy) -> dict[str, Any]:
    """Each part as (name, value) pairs, two ratios as text, the rules of thumb, the timeline."""
    parts: dict[str, Any] = {part: _pairs(anatomy, part) for part in _PARTS}
    return {
        **parts,
        "ratios": _ratios(anatomy),
        "rules": [
            [entry.name, entry.value, entry.expected, entry.unit, int(entry.held)]
            for entry in anatomy.entries
            if entry.held is not None
        ],
        "timeline": _timeline(anatomy.timeline),
    }


def _pairs(anatomy: Anatomy, part: Part) -> list[tuple[str, float]]:
    """What is above zero, with six digits."""
    values = anatomy.values(part)
    return [(name, float(f"{value:.6g}")) for name, value in values.items() if value > 0]


def _ratios(anatomy: Anatomy) -> list[str]:
    """Backward / forward and MFU, empty where not known."""
    ratio = anatomy.values("phases").get(BACKWARD_TO_FORWARD)
    mfu = anatomy.values("efficiency").get("MFU")
    return [
        "" if ratio is None else number(ratio),
        "" if mfu is None else f"{100 * mfu:.1f} %",
    ]


def _timeline(timeline: Timeline) -> dict[str, Any]:
    sizes = {name: [round(size / MIB, 1) for size in held] for name, held in timeline.held.items()}
    return {
        "seconds": [float(f"{seconds:.5g}") for seconds in timeline.seconds],
        "mib": sizes,
        "phases": [list(phase) for phase in timeline.phases],
    }
