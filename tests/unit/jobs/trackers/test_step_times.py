"""When the steps of a SIMULATED GPU are enough, and that the GPU never waits for that decision."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.trackers import Moment, Steps
from tests.support.gpu import Device, simulated

LAUNCH = 0.01
OPTIMIZER = 0.05
QUIET = [0.4] * 9
LOSS: Any = SimpleNamespace(is_cuda=True)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


def train(
    device: Device, passes: Sequence[float], launch: float = LAUNCH, *, waits: bool = True
) -> Steps:
    """A slow warm-up step, then steps whose passes take so long, until there are enough.

    A loop that ``waits`` reads each loss, as the Trainer does to check for NaN. ``device.idle`` is
    then the time that the device stood still after the warm-up.
    """
    tracker = Steps()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    for index, seconds in enumerate([2.0, *passes]):
        device.host.now += launch
        device.work(seconds)
        tracker.micro_batch({"input_ids": torch.zeros(2, 10)})
        tracker.loss(LOSS)
        if waits:
            device.event().synchronize()
        if index == 0:
            device.work(10 * OPTIMIZER)
            device.idle = 0.0
        else:
            device.work(OPTIMIZER)
        tracker.step_end()
        if tracker.are_enough(1, len(passes) + 1, 0.01):
            break
    tracker.close(1, 0.01)
    return tracker


def test_steps_stop_at_the_last_that_is_needed(device):
    values = train(device, QUIET).measurements()
    assert (values["warmup_steps"], values["steps_counted"]) == (1, 3)
    assert values["samples_per_second"] == pytest.approx(2 / (0.4 + OPTIMIZER))


def test_steps_never_drain_the_device(device):
    values = train(device, [0.4, 0.5] * 4).measurements()
    assert values["steps_counted"] > 3
    assert device.idle == 0.0


def test_steps_let_a_loop_run_ahead_of_the_device(device):
    values = train(device, QUIET, launch=0.3, waits=False).measurements()
    assert device.idle == 0.0
    assert (values["warmup_steps"], values["steps_counted"]) == (1, 4)
    assert values["samples_per_second"] == pytest.approx(2 / (0.4 + OPTIMIZER))


def test_steps_of_a_loop_that_waits_include_its_launches(device):
    values = train(device, QUIET, launch=0.3).measurements()
    assert device.idle > 0.0
    assert values["samples_per_second"] == pytest.approx(2 / (0.4 + 0.3), rel=1e-3)


def test_steps_have_the_devices_own_seconds(device):
    tracker = train(device, [0.4, 0.44, *QUIET])
    values = tracker.measurements()
    assert tracker.series()["device_seconds"][1:3] == pytest.approx([0.45, 0.49])
    assert values["steps_counted"] == 4
    assert values["host_bound_share"] == 0.0


def test_steps_of_a_slow_host_are_host_bound(device):
    values = train(device, [1e-4] * 9, launch=1.0).measurements()
    assert values["host_bound_share"] == 1.0
    assert device.idle > 0.0
