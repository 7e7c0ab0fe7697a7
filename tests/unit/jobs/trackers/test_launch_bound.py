"""Whether a GPU is seen to wait for its host in forward passes and updates, with a SIMULATED one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.trackers import Moment
from jobs.trackers.launch_bound import LaunchBound
from tests.support.gpu import Device, simulated

BACKWARD, OPTIMIZER, LAUNCH = 0.2, 0.02, 0.01
LOSS: Any = None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


def shares(
    device: Device,
    forward: float,
    launch: float,
    *,
    update_launch: float = 0.0,
    steps: int = 4,
    accumulation: int = 1,
    waits: bool = True,
) -> dict[str, float]:
    """Of such steps; a forward pass is of ten kernels, launched one after the other, and so is an update where that
    takes any time. Before the first nothing is done."""
    tracker = LaunchBound()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.done_at
    for _ in range(steps):
        for _ in range(accumulation):
            _micro_batch(tracker, device, forward, launch)
            if waits:
                device.event().synchronize()
        tracker.phase("clipping")
        tracker.phase("upkeep")
        tracker.phase("optimizer")
        _launched(device, 0.001 if update_launch else OPTIMIZER, update_launch)
        tracker.phase("upkeep")
        tracker.step_end()
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    return dict(tracker.measurements())


def share(device: Device, forward: float, launch: float, **more: Any) -> float:
    """Of the forward passes, where no update starves."""
    found = shares(device, forward, launch, **more)
    assert found["launch_bound_update_share"] == 0.0
    return found["launch_bound_forward_share"]


def _launched(device: Device, seconds: float, launch: float) -> None:
    for _ in range(10):
        device.host.now += launch / 10
        device.work(seconds / 10)


def _micro_batch(tracker: LaunchBound, device: Device, forward: float, launch: float) -> None:
    tracker.phase("forward")
    _launched(device, forward, launch)
    tracker.phase("backward")
    device.host.now += LAUNCH
    device.work(BACKWARD)
    tracker.phase("upkeep")
    tracker.loss(LOSS)


def test_a_forward_pass_that_is_launched_slower_than_it_runs_starves_its_gpu(
    device: Device,
) -> None:
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


@pytest.mark.parametrize("forward", [0.001, 0.1])
def test_so_does_an_update(device: Device, forward: float) -> None:
    """An optimizer of thousands of small kernels, say, behind a forward pass that starves the GPU or does not."""
    found = shares(device, forward=forward, launch=0.03, update_launch=0.3)
    step = max(forward, 0.03) + BACKWARD + 0.3
    assert found["launch_bound_update_share"] == pytest.approx(0.3 / step, rel=0.1)
    assert (found["launch_bound_forward_share"] > 0.0) is (forward < 0.03)


def test_after_long_nobody_knows(device: Device) -> None:
    tracker = LaunchBound()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.host.now
    device.host.now += 60.0
    device.work(70.0)
    _micro_batch(tracker, device, 0.001, 0.1)
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    assert set(tracker.measurements().values()) == {0.0}


@pytest.mark.parametrize("told", [lambda tracker: None, lambda tracker: tracker.counted(0.0, 1.0)])
def test_nothing_is_said_of_what_was_not_counted_or_not_on_a_gpu(
    told: Callable[[LaunchBound], None],
) -> None:
    tracker = LaunchBound()
    tracker.phase("forward")
    tracker.phase("backward")
    tracker.step_end()
    told(tracker)
    assert tracker.measurements() == {}
