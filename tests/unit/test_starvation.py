"""Whether a GPU is seen to wait for its host in forward passes, with a SIMULATED one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.trackers import Moment
from jobs.trackers.starvation import Starvation
from tests.unit.gpu import Device, simulated

BACKWARD, OPTIMIZER, LAUNCH = 0.2, 0.02, 0.01
LOSS: Any = None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


def share(
    device: Device, forward: float, launch: float, *, steps: int = 4, accumulation: int = 1, waits: bool = True
) -> float:
    """Of such steps; a forward pass is of ten kernels, launched one after the other. Before it nothing is done."""
    tracker = Starvation()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.done_at
    for _ in range(steps):
        for _ in range(accumulation):
            _micro_batch(tracker, device, forward, launch)
            if waits:
                device.event().synchronize()
        tracker.phase("clipping")
        tracker.phase("optimizer")
        device.work(OPTIMIZER)
        tracker.phase("upkeep")
        tracker.step_end()
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    found: float = tracker.measurements()["starved_share"]
    return found


def _micro_batch(tracker: Starvation, device: Device, forward: float, launch: float) -> None:
    tracker.phase("forward")
    for _ in range(10):
        device.host.now += launch / 10
        device.work(forward / 10)
    tracker.phase("backward")
    device.host.now += LAUNCH
    device.work(BACKWARD)
    tracker.phase("upkeep")
    tracker.loss(LOSS)


def test_a_forward_pass_that_is_launched_slower_than_it_runs_starves_its_gpu(device: Device) -> None:
    starved = share(device, forward=0.001, launch=0.1)
    assert starved == pytest.approx(0.1 / (0.1 + BACKWARD + OPTIMIZER), rel=0.2)


@pytest.mark.parametrize("forward", [0.1, 0.04])
def test_one_that_runs_longer_than_it_is_launched_does_not(device: Device, forward: float) -> None:
    assert share(device, forward=forward, launch=0.03) == 0.0


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_optimizer_that_still_runs_hides_nothing(device: Device, accumulation: int) -> None:
    """The first pass of a step begins behind it, and is told by where the GPU was idle before."""
    starved = share(device, forward=0.001, launch=0.1, accumulation=accumulation)
    passes = accumulation * (0.1 + BACKWARD)
    assert starved == pytest.approx(accumulation * 0.1 / (passes + OPTIMIZER), rel=0.2)


def test_a_loop_that_runs_ahead_of_the_gpu_starves_it_at_most_once(device: Device) -> None:
    assert share(device, forward=0.001, launch=0.1, waits=False, steps=20) < 0.1
    assert share(device, forward=0.001, launch=0.1, waits=False, steps=1) > 0.1


def test_after_long_nobody_knows(device: Device) -> None:
    tracker = Starvation()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.host.now
    device.host.now += 60.0
    device.work(70.0)
    _micro_batch(tracker, device, 0.001, 0.1)
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    assert tracker.measurements() == {"starved_share": 0.0}


@pytest.mark.parametrize("told", [lambda tracker: None, lambda tracker: tracker.counted(0.0, 1.0)])
def test_nothing_is_said_of_what_was_not_counted_or_not_on_a_gpu(told: Callable[[Starvation], None]) -> None:
    tracker = Starvation()
    tracker.phase("forward")
    tracker.phase("backward")
    tracker.step_end()
    told(tracker)
    assert tracker.measurements() == {}
