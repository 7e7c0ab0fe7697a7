"""Places in what the host launches, and when the device was there."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def recorded() -> torch.cuda.Event:
    """An event whose time will be known, recorded now."""
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@dataclass(frozen=True, slots=True)
class Place:
    """Where the host launched an event, by its monotonic clock."""

    seconds: float
    event: torch.cuda.Event

    @classmethod
    def here(cls) -> Place:
        return cls(time.perf_counter(), recorded())

    def device_seconds_to(self, later: Place) -> float:
        """What passed for the device, which must have been at both."""
        milliseconds: float = self.event.elapsed_time(later.event)
        return milliseconds / 1000

    def lag_at(self, later: Place) -> float:
        """By how many seconds more the device is behind the host there than here."""
        return self.device_seconds_to(later) - (later.seconds - self.seconds)
