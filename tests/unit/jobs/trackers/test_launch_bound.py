"""The share of launch-bound forward passes and updates, on a SIMULATED GPU."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.trackers import Moment
from jobs.trackers.launch_bound import LaunchBound
from tests.support.gpu import Device, simulated

BACKWARD = 0.2
OPTIMIZER = 0.02
LAUNCH = 0.01
KERNELS = 10
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
    """The tracker's values for equal steps; seconds that the device and the host's launches take.

    A loop that ``waits`` reads each loss. With ``update_launch`` 0 the update is one kernel.
    """
    tracker = LaunchBound()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.done_at
    for _ in range(steps):
        for _ in range(accumulation):
            run_micro_batch(tracker, device, forward, launch)
            if waits:
                device.event().synchronize()
        tracker.phase("clipping")
        tracker.phase("upkeep")
        tracker.phase("optimizer")
        launch_kernels(device, 0.001 if update_launch else OPTIMIZER, update_launch)
        tracker.phase("upkeep")
        tracker.step_end()
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    return dict(tracker.measurements())


def forward_share(device: Device, forward: float, launch: float, **more: Any) -> float:
    """The share of forward passes, where no update is launch-bound."""
    values = shares(device, forward, launch, **more)
    assert values["launch_bound_update_share"] == 0.0
    return values["launch_bound_forward_share"]


def launch_kernels(device: Device, seconds: float, launch: float) -> None:
    """Kernels that together take so long on the device and to launch."""
    for _ in range(KERNELS):
        device.host.now += launch / KERNELS
        device.work(seconds / KERNELS)


def run_micro_batch(tracker: LaunchBound, device: Device, forward: float, launch: float) -> None:
    tracker.phase("forward")
    launch_kernels(device, forward, launch)
    tracker.phase("backward")
    device.host.now += LAUNCH
    device.work(BACKWARD)
    tracker.phase("upkeep")
    tracker.loss(LOSS)


def test_launch_bound_forward_launched_slower_than_it_runs(device: Device) -> None:
    share = forward_share(device, forward=0.001, launch=0.1)
    assert share == pytest.approx(0.1 / (0.1 + BACKWARD + OPTIMIZER), rel=0.2)


@pytest.mark.parametrize("forward", [0.1, 0.04])
def test_launch_bound_forward_launched_faster_is_zero(device: Device, forward: float) -> None:
    assert forward_share(device, forward=forward, launch=0.03) == 0.0


@pytest.mark.parametrize("accumulation", [1, 3])
def test_launch_bound_is_seen_behind_a_running_optimizer(device: Device, accumulation: int) -> None:
    # A step's first pass begins while the optimizer runs: the GPU was idle at an earlier point.
    share = forward_share(device, forward=0.001, launch=0.1, accumulation=accumulation)
    passes = accumulation * (0.1 + BACKWARD)
    assert share == pytest.approx(accumulation * 0.1 / (passes + OPTIMIZER), rel=0.2)


@pytest.mark.parametrize(("steps", "is_small"), [(20, True), (1, False)])
def test_launch_bound_loop_that_runs_ahead_idles_once(
    device: Device, steps: int, is_small: bool
) -> None:
    share = forward_share(device, forward=0.001, launch=0.1, waits=False, steps=steps)
    assert (share < 0.1) is is_small


@pytest.mark.parametrize("forward", [0.001, 0.1])
def test_launch_bound_update_of_many_small_kernels(device: Device, forward: float) -> None:
    values = shares(device, forward=forward, launch=0.03, update_launch=0.3)
    step = max(forward, 0.03) + BACKWARD + 0.3
    assert values["launch_bound_update_share"] == pytest.approx(0.3 / step, rel=0.1)
    assert (values["launch_bound_forward_share"] > 0.0) is (forward < 0.03)


def test_launch_bound_has_the_seconds_of_a_steps_passes_and_update(device: Device) -> None:
    values = shares(device, forward=0.1, launch=0.03, accumulation=3)
    assert values["forward_seconds_median"] == pytest.approx(3 * 0.1, rel=0.05)
    assert values["update_seconds_median"] == pytest.approx(OPTIMIZER, rel=0.05)


def test_launch_bound_long_after_the_last_idle_point_is_unknown(device: Device) -> None:
    tracker = LaunchBound()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.host.now
    device.host.now += 60.0
    device.work(70.0)
    run_micro_batch(tracker, device, 0.001, 0.1)
    device.event().synchronize()
    tracker.counted(begin, device.host.now)
    values = tracker.measurements()
    assert values["launch_bound_forward_share"] == values["launch_bound_update_share"] == 0.0


@pytest.mark.parametrize("is_counted", [False, True])
def test_launch_bound_without_a_gpu_measures_nothing(is_counted: bool) -> None:
    tracker = LaunchBound()
    tracker.phase("forward")
    tracker.phase("backward")
    tracker.step_end()
    if is_counted:
        tracker.counted(0.0, 1.0)
    assert tracker.measurements() == {}
