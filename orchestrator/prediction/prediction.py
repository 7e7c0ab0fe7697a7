"""What is predicted of a trial: memory with an interval, its anatomy at the peak, and the cards it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jobs.anatomy.memory.kinds import KINDS as KINDS

Verdict = Literal["yes", "tight", "no", "unknown"]
"""yes: everything fits; no: tensors alone do not; tight: between, where cached memory would have to be given back."""

_MIB = 2**20
CARDS: Mapping[int, int] = {
    16: 15_360 * _MIB,  # T4
    24: 23_028 * _MIB,  # A10
    40: 40_536 * _MIB,  # A100 40 GB
    48: 46_068 * _MIB,  # A40, L40S
    80: 81_559 * _MIB,  # H100 80 GB
    141: 143_771 * _MIB,  # H200
}
"""Nominal GB -> bytes that NVML reports for the smallest common card of that name, ECC on."""


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
    choices: Mapping[str, Any]
    allocated: Figure | None = None
    """Most bytes held by tensors, as ``peak_allocated_bytes`` counts them."""
    reserved: Figure | None = None
    """Most bytes the caching allocator holds."""
    device: Figure | None = None
    """What NVML would see, context and libraries included."""
    anatomy: Mapping[str, int] = field(default_factory=dict)
    """``jobs.anatomy.memory.kinds.KINDS`` -> bytes at the peak; they add up to ``allocated.bytes``."""
    unknown: str = ""

    def fits(self, card_bytes: int) -> Verdict:
        """Whether the trial runs on a card of this size."""
        if self.device is None or self.allocated is None or self.reserved is None:
            return "unknown"
        if self.device.high <= card_bytes:
            return "yes"
        outside = self.device.low - self.reserved.low
        return "no" if self.allocated.low + outside > card_bytes else "tight"


def figure(nbytes: int, *, below: float, above: float, slack: int = 0) -> Figure:
    """Bytes with a relative interval, and ``slack`` bytes more above."""
    return Figure(
        bytes=nbytes, low=int(nbytes * (1 - below)), high=int(nbytes * (1 + above)) + slack
    )
