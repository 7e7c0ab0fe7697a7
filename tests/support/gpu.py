"""A SIMULATED GPU for trackers: it works off what it is given while the host, whose time a test tells, goes on."""

from __future__ import annotations

import time

import pytest
import torch

from jobs.trackers.sources import cuda_events
from tests.support.clock import Clock


class Device:
    """A queue of work, how long it stood still, and the events recorded in it."""

    def __init__(self, host: Clock) -> None:
        self.host, self.done_at, self.idle = host, host.now, 0.0

    def work(self, seconds: float) -> None:
        self.idle += max(0.0, self.host.now - self.done_at)
        self.done_at = max(self.host.now, self.done_at) + seconds

    def event(self) -> Event:
        return Event(self.host, max(self.host.now, self.done_at))


class Event:
    """A place in the queue; to ask for it or to wait for it takes the host's time."""

    def __init__(self, host: Clock, at: float) -> None:
        self.host, self.at = host, at

    def synchronize(self) -> None:
        self.host.now = max(self.host.now, self.at)

    def query(self) -> bool:
        self.host.now += 1e-4
        return self.host.now >= self.at

    def elapsed_time(self, other: Event) -> float:
        return 1000 * (other.at - self.at)


def simulated(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The only one that there is."""
    host = Clock()
    device = Device(host)
    monkeypatch.setattr(time, "perf_counter", host)
    monkeypatch.setattr(cuda_events, "recorded", device.event)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: device.event().synchronize())
    return device
