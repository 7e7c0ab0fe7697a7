"""When steps on a device are looked at, with a SIMULATED one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.trackers import Moment, Steps
from tests.support.gpu import Device, simulated

LAUNCH, OPTIMIZER = 0.01, 0.05
QUIET = [0.4] * 9
LOSS: Any = SimpleNamespace(is_cuda=True)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


def trained(
    device: Device, passes: list[float], launch: float = LAUNCH, *, waits: bool = True
) -> tuple[Steps, float]:
    """Steps of such forward and backward passes, the first a slow warm-up, until there are enough; and for how
    long the device stood still between the first and the last. The Trainer waits for each loss: is it a number?"""
    tracker = Steps()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    for place, seconds in enumerate([2.0, *passes]):
        device.host.now += launch
        device.work(seconds)
        tracker.micro_batch({"input_ids": torch.zeros(2, 10)})
        tracker.loss(LOSS)
        if waits:
            device.event().synchronize()
        device.work(OPTIMIZER if place else 10 * OPTIMIZER)
        if not place:
            device.idle = 0.0
        tracker.step_end()
        if tracker.are_enough(1, len(passes) + 1, 0.01):
            break
    tracker.close(1, 0.01)
    return tracker, device.idle


def test_no_step_is_run_beyond_the_last_that_is_needed(device: Device) -> None:
    tracker, _ = trained(device, QUIET)
    found = tracker.measurements()
    assert (found["warmup_steps"], found["steps_counted"]) == (1, 3)
    assert found["samples_per_second"] == pytest.approx(2 / (0.4 + OPTIMIZER))


def test_device_is_never_drained_to_look_at_its_steps(device: Device) -> None:
    tracker, idle = trained(device, [0.4, 0.5] * 4)
    assert tracker.measurements()["steps_counted"] > 3
    assert idle == 0.0


def test_a_loop_that_runs_ahead_of_the_device_is_left_to(device: Device) -> None:
    tracker, idle = trained(device, QUIET, launch=0.3, waits=False)
    found = tracker.measurements()
    assert idle == 0.0
    assert (found["warmup_steps"], found["steps_counted"]) == (1, 4)
    assert found["samples_per_second"] == pytest.approx(2 / (0.4 + OPTIMIZER))


def test_a_loop_that_waits_for_its_device_is_no_faster_for_that(device: Device) -> None:
    tracker, idle = trained(device, QUIET, launch=0.3)
    assert idle > 0.0
    assert tracker.measurements()["samples_per_second"] == pytest.approx(2 / (0.4 + 0.3), rel=1e-3)


def test_steps_are_told_apart_by_what_the_device_did(device: Device) -> None:
    tracker, _ = trained(device, [0.4, 0.44, *QUIET])
    found = tracker.measurements()
    assert tracker.series()["device_seconds"][1:3] == pytest.approx([0.45, 0.49])
    assert found["steps_counted"] == 4
    assert found["host_bound_share"] == 0.0


def test_what_waits_for_its_host_is_the_hosts_speed(device: Device) -> None:
    tracker, idle = trained(device, [1e-4] * 9, launch=1.0)
    assert tracker.measurements()["host_bound_share"] == 1.0
    assert idle > 0.0
