"""When the steps of a SIMULATED GPU are enough, and that the GPU never waits for that decision."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.steady_state import mean_step_error
from jobs.trackers import Moment, Steps
from tests.support.clock import Clock
from tests.support.gpu import QUERY_SECONDS, Device, simulated

LAUNCH = 0.01
OPTIMIZER = 0.05
QUIET = [0.4] * 9
LOSS: Any = SimpleNamespace(is_cuda=True)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


def train(
    device: Device,
    passes: Sequence[float],
    launch: float = LAUNCH,
    *,
    unrest: float = 0.0,
    waits: bool = True,
) -> Steps:
    """A slow warm-up step, then steps whose passes take so long, until there are enough.

    Every second launch takes longer by ``unrest``. A loop that ``waits`` reads each loss, as the
    Trainer does to check for NaN. ``device.idle`` is then the time that the device stood still
    after the warm-up.
    """
    tracker = Steps()
    tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    for index, seconds in enumerate([2.0, *passes]):
        device.host.now += launch + unrest * (index % 2)
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
    # The device reaches the event while the host asks for the second time.
    passes = [1.5 * QUERY_SECONDS] * 40
    values = train(device, passes, launch=1.0, unrest=0.03).measurements()
    assert values["steps_counted"] == 5
    assert values["host_bound_share"] == 1.0
    assert device.idle > 0.0


class Ragged:
    """Rows of unequal length: an epoch's mean step takes twice a counted one's seconds."""

    distinct = 3

    def at_mean(self, seconds: Sequence[float], first: int) -> list[float]:
        assert first == 1
        return [2 * step for step in seconds]

    def new_shapes(self, seconds: Sequence[float]) -> tuple[float, float]:
        return 0.5, 0.1 * len(seconds)

    def expected(self, first: int, counted: int) -> tuple[float, float, float]:
        return float(first + counted), 0.25, 3.0


def begun(monkeypatch: pytest.MonkeyPatch, ragged: Ragged | None) -> tuple[Clock, Steps]:
    clock, tracker = Clock(), Steps()
    monkeypatch.setattr("time.perf_counter", clock)
    tracker.ragged = ragged
    tracker.at(Moment.TRAIN_BEGIN, clock.now)
    return clock, tracker


@pytest.mark.parametrize("ragged", [None, Ragged()])
def test_figures_are_of_the_counted_steps_alone(monkeypatch, ragged):
    clock, tracker = begun(monkeypatch, ragged)
    for index, seconds in enumerate([9.0, 1.0, 2.0, 6.0]):
        for rows in (1, 2 + index):
            tracker.data_wait(seconds / 8)
            tracker.micro_batch({"input_ids": torch.zeros(rows, 10)})
        clock.now += seconds
        tracker.step_end()
    clock.now += 5.0
    assert tracker.measurements() == {"first_step_seconds": 9.0}
    assert tracker.close(1, 0.0) == (1009.0, 1018.0)
    assert tracker.series() == {
        "step_seconds": [9.0, 1.0, 2.0, 6.0],
        "data_seconds": [2.25, 0.25, 0.5, 1.5],
    }
    steps = [2.5, 4.5, 12.5] if ragged else [1.0, 2.0, 6.0]
    positions, tokens, samples = (4.0, 0.25, 3.0) if ragged else (1.0, 1.0, 1.0)
    new_shapes = {"new_shapes_share": pytest.approx(0.5 / (sum(steps) / 3))} if ragged else {}
    half_width = 0.4 / (sum(steps) / 3) if ragged else 0.0
    assert tracker.measurements() == new_shapes | {
        "first_step_seconds": 9.0,
        "steps_counted": 3,
        "warmup_steps": 1,
        "counted_seconds": 9.0,
        "step_seconds_median": steps[1],
        "data_seconds_median": 0.5,
        "samples_per_second": 15 * samples / sum(steps),
        "tokens_per_second": 150 * positions / sum(steps),
        "real_tokens_per_second": 150 * tokens / sum(steps),
        "samples_per_second_ci95": pytest.approx(math.hypot(mean_step_error(steps), half_width)),
    }


@pytest.mark.parametrize("ragged", [None, Ragged()])
def test_cpu_steps_are_enough_after_a_second_of_quiet_ones_of_every_kind(monkeypatch, ragged):
    clock, tracker = begun(monkeypatch, ragged)
    for index in range(9):
        clock.now += 0.4
        tracker.step_end()
        assert tracker.are_enough(1, 9, 0.05) is (index >= 3)
        assert not tracker.are_enough(1, 9, 0.0)
