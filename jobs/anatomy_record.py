"""What an anatomy consists of: named figures, and the memory over one step. Plain data that travels in the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Part = Literal[
    "memory",
    "activations",
    "host memory",
    "rules",
    "operations",
    "kernels",
    "modules",
    "step",
    "phases",
    "efficiency",
]
PARTS: Mapping[Part, str] = {
    "memory": "the ledger of device memory at the peak of a step: adds up to what NVML saw (without a GPU: to the "
    "tensors' bytes)",
    "activations": "what the forward pass kept for the backward pass, by the operator that made it",
    "host memory": "what the model and its optimizer keep on the host",
    "rules": "the most that a class held over the step, beside the guides' rules of thumb",
    "operations": "a step's time on the device (without a GPU: of the processor) by kind of operation, idle included",
    "kernels": "the operators that took most of it",
    "modules": "the same time, of the forward and backward passes, by the class of the module that it was spent in; "
    "torch.nn's blocks but normalizations count with the module they are in, all that was compiled as one",
    "step": "a step's time by what it went to: adds up to the step",
    "phases": "a step's time by what the loop was doing, idle time included",
    "efficiency": "floating-point operations and the share of the device's peak",
}
"""Part -> what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One figure of an anatomy."""

    part: Part
    name: str
    value: float
    unit: str
    kind: str = ""
    """The class in ``jobs.anatomy.memory.kinds`` that predictions count it under."""
    expected: float | None = None
    """What the rule says."""
    rule: str = ""
    held: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """Memory over one step: each sample is the highest moment of its stretch of time."""

    seconds: list[float] = field(default_factory=list)
    """From the step's beginning."""
    held: Mapping[str, list[int]] = field(default_factory=dict)
    """Name -> bytes at each sample."""
    phases: list[tuple[str, float]] = field(default_factory=list)
    """What the loop did, and since when (seconds)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A trial taken apart."""

    entries: tuple[Entry, ...] = ()
    timeline: Timeline = field(default_factory=Timeline)

    def values(self, part: Part) -> dict[str, float]:
        """Name -> value of a part's entries, in order."""
        return {entry.name: entry.value for entry in self.entries if entry.part == part}


def anatomy_from_json(raw: Mapping[str, Any]) -> Anatomy:
    """The inverse of ``jobs.spec.to_json``. Raises KeyError or TypeError on a foreign document."""
    line = dict(raw["timeline"])
    line["phases"] = [(name, seconds) for name, seconds in line["phases"]]
    return Anatomy(
        entries=tuple(Entry(**entry) for entry in raw["entries"]), timeline=Timeline(**line)
    )
