"""CUDA events, with the time at which the host launched them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

IDLE_LAG_SECONDS = 200e-6
"""If the device is less than this behind the host, it waited for it. Asking takes time, too."""


def recorded() -> torch.cuda.Event:
    """A timing event, recorded now on the current stream."""
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def is_reached_at_once(event: torch.cuda.Event) -> bool:
    """Whether the device waited for the host: it reaches a new event in ``IDLE_LAG_SECONDS``."""
    give_up = time.perf_counter() + IDLE_LAG_SECONDS
    while True:
        if event.query():
            return True
        if time.perf_counter() >= give_up:
            return False


def seconds_between(events: Sequence[torch.cuda.Event]) -> list[float]:
    """Seconds on the device between successive events, all of which it must have reached."""
    # CUDA counts milliseconds.
    return [begin.elapsed_time(end) / 1000 for begin, end in itertools.pairwise(events)]


@dataclass(frozen=True, slots=True)
class LaunchPoint:
    """A point in the sequence of launches, by the clocks of host and device."""

    seconds: float  # the host's ``time.perf_counter``
    event: torch.cuda.Event

    @classmethod
    def now(cls) -> LaunchPoint:
        """The point after everything that was launched so far."""
        return cls(time.perf_counter(), recorded())

    def device_seconds_to(self, later: LaunchPoint) -> float:
        """Seconds that passed on the device between two points that it has reached."""
        return seconds_between((self.event, later.event))[0]

    def lag_at(self, later: LaunchPoint) -> float:
        """By how many more seconds the device is behind the host at ``later`` than here."""
        host_seconds = later.seconds - self.seconds
        return self.device_seconds_to(later) - host_seconds
