"""What is predicted of a trial: memory with an interval, its anatomy, and the cards it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.spec import Choice
from orchestrator.units import MIB

Fit = Literal["yes", "tight", "no", "unknown"]
"""yes: everything fits. no: tensors alone do not. tight: cached memory must be given back."""

CARDS: Mapping[int, int] = {
    16: 15_360 * MIB,  # T4
    24: 23_028 * MIB,  # A10
    40: 40_536 * MIB,  # A100 40 GB
    48: 46_068 * MIB,  # A40, L40S
    80: 81_559 * MIB,  # H100 80 GB
    141: 143_771 * MIB,  # H200
}
"""Nominal GB -> bytes that NVML reports for the smallest common card of that size, ECC on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """Bytes, and the interval that should hold the measurement."""

    bytes: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A trial's peaks, or in ``unknown`` why there are none."""

    trial_id: str
    choices: Mapping[str, Choice]
    allocated: Figure | None = None
    """Most bytes held by tensors, as ``peak_allocated_bytes`` counts them."""
    reserved: Figure | None = None
    """Most bytes that the caching allocator holds."""
    device: Figure | None = None
    """What NVML would see, context and libraries included."""
    anatomy: Mapping[str, int] = field(default_factory=dict)
    """Kind of memory -> bytes at the peak; they add up to ``allocated.bytes``.

    The kinds are those of ``jobs.anatomy.memory.kinds``.
    """
    unknown: str = ""
    """Why nothing is predicted; empty where something is."""

    @property
    def cards(self) -> dict[int, Fit]:
        """Nominal GB of each of ``CARDS`` -> whether the trial runs on such a card."""
        return {card: self.fits(size) for card, size in CARDS.items()}

    def fits(self, card_bytes: int) -> Fit:
        """Whether the trial runs on a card of this size."""
        if self.device is None or self.allocated is None or self.reserved is None:
            return "unknown"
        if self.device.high <= card_bytes:
            return "yes"
        # Context and libraries, the part of the device's memory that no allocator gives back.
        outside = self.device.low - self.reserved.low
        if self.allocated.low + outside > card_bytes:
            return "no"
        return "tight"


def figure(nbytes: int, *, below: float, above: float, slack: int = 0) -> Figure:
    """Bytes with a relative interval, and ``slack`` bytes more above."""
    low = int(nbytes * (1 - below))
    high = int(nbytes * (1 + above)) + slack
    return Figure(bytes=nbytes, low=low, high=high)
