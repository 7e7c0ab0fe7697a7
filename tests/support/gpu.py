"""A SIMULATED GPU for trackers: it works through a queue while the host's clock goes on."""

import time
from typing import Self

import pytest
import torch

from jobs.trackers.sources import cuda_events
from tests.support.clock import Clock

QUERY_SECONDS = 1e-4
"""What it costs the host to ask about an event."""


class Event:
    """In place of ``torch.cuda.Event``."""

    def __init__(self, host: Clock, at: float) -> None:
        self.host = host
        self.at = at

    def synchronize(self) -> None:
        self.host.now = max(self.host.now, self.at)

    def query(self) -> bool:
        self.host.now += QUERY_SECONDS
        return self.host.now >= self.at

    def elapsed_time(self, other: Self) -> float:
        assert other.at <= self.host.now, "not reached"
        return 1000 * (other.at - self.at)


class Device:
    """A queue of work, and for how long it was empty."""

    def __init__(self, host: Clock) -> None:
        self.host = host
        self.done_at = host.now
        """When the device will have done everything in its queue."""
        self.idle = 0.0

    def work(self, seconds: float) -> None:
        """The host launches work."""
        self.idle += max(0.0, self.host.now - self.done_at)
        self.done_at = max(self.host.now, self.done_at) + seconds

    def event(self) -> Event:
        """An event behind everything that was launched."""
        return Event(self.host, max(self.host.now, self.done_at))


def simulated(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The only GPU there is, with its host's clock."""
    host = Clock()
    device = Device(host)
    monkeypatch.setattr(time, "perf_counter", host)
    monkeypatch.setattr(cuda_events, "recorded", device.event)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: device.event().synchronize())
    return device
