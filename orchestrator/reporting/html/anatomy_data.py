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
        "rules": _rules(anatomy),
        "timeline": _timeline(anatomy.timeline),
    }


def _pairs(anatomy: Anatomy, part: Part) -> list[tuple[str, float]]:
    """The values above zero. Six digits are more than a profiler's precision."""
    values = anatomy.values(part)
    return [(name, float(f"{value:.6g}")) for name, value in values.items() if value > 0]


def _ratios(anatomy: Anatomy) -> list[str]:
    """Backward / forward and MFU, empty if not known."""
    # Text, because both are shown and never computed with.
    texts = ["", ""]
    ratio = anatomy.values("phases").get(BACKWARD_TO_FORWARD)
    if ratio is not None:
        texts[0] = number(ratio)
    mfu = anatomy.values("efficiency").get("MFU")
    if mfu is not None:
        texts[1] = f"{100 * mfu:.1f} %"
    return texts


def _rules(anatomy: Anatomy) -> list[list[Any]]:
    """The rules of thumb that apply.

    Each is a list: name, measured value, expected value, unit, and 1 if the rule held, else 0.
    """
    rules = []
    for entry in anatomy.entries:
        if entry.held is not None:
            rules.append([entry.name, entry.value, entry.expected, entry.unit, int(entry.held)])
    return rules


def _timeline(timeline: Timeline) -> dict[str, Any]:
    # A tenth of a MiB and five digits of a second are below a pixel of the drawn timeline.
    sizes = {}
    for name, samples in timeline.held.items():
        sizes[name] = [round(nbytes / MIB, 1) for nbytes in samples]
    return {
        "seconds": [float(f"{seconds:.5g}") for seconds in timeline.seconds],
        "mib": sizes,
        "phases": list(map(list, timeline.phases)),
    }
