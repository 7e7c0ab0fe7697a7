"""CUDA events, with the time at which the host launched them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def recorded() -> torch.cuda.Event:
    """A timing event, recorded now on the current stream."""
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


@dataclass(frozen=True, slots=True)
class LaunchPoint:
    """A point in the sequence of launches, by the clocks of host and device."""

    seconds: float
    """The host's ``time.perf_counter``."""
    event: torch.cuda.Event

    @classmethod
    def now(cls) -> LaunchPoint:
        """The point after everything that was launched so far."""
        return cls(time.perf_counter(), recorded())

    def device_seconds_to(self, later: LaunchPoint) -> float:
        """Seconds that passed on the device between two points that it has reached."""
        milliseconds: float = self.event.elapsed_time(later.event)
        return milliseconds / 1000

    def lag_at(self, later: LaunchPoint) -> float:
        """By how many more seconds the device is behind the host at ``later`` than here."""
        host_seconds = later.seconds - self.seconds
        return self.device_seconds_to(later) - host_seconds
