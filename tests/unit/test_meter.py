"""The meter's line between warm-up and counted steps, and the rates that the step tracker makes of it by its clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from jobs.loops.meter import Meter
from jobs.trackers import Moment, Steps, Tracker
from jobs.trackers.losses import Losses

CPU = torch.device("cpu")
M = Moment


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the meter and of the trackers."""
    fake = Clock()
    monkeypatch.setattr(time, "perf_counter", fake)
    return fake


class Recorder(Tracker):
    """Writes down everything that it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def at(self, moment: Moment, seconds: float) -> None:
        self.heard.append(moment.value)

    def data_wait(self, seconds: float) -> None:
        self.heard.append("data_wait")

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self.heard.append("micro_batch")

    def loss(self, value: torch.Tensor) -> None:
        self.heard.append("loss")

    def step_end(self) -> None:
        self.heard.append("step_end")


def moments(*, warmup_steps: int, total_steps: int, enough_after: int | None = None) -> tuple[list[str], list[str]]:
    """What trackers hear and what is announced when a loop runs until the meter has enough."""
    recorder, announced = Recorder(), list[str]()
    steps = 0
    meter = Meter(
        [recorder],
        announced.append,
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        enough=lambda: enough_after is not None and steps >= enough_after,
        device=CPU,
    )
    meter.train_begin()
    while True:
        steps += 1
        if meter.step_end():
            return recorder.heard, announced


def test_the_counted_steps_begin_after_the_warm_up() -> None:
    heard, announced = moments(warmup_steps=2, total_steps=4)
    assert heard == [
        "train_begin",
        "step_end",
        "step_end",
        "counted_begin",
        "step_end",
        "step_end",
        "counted_end",
    ]
    assert announced == ["first_step", "warm_up", "steps"]


def test_without_a_warm_up_every_step_counts() -> None:
    heard, _ = moments(warmup_steps=0, total_steps=2)
    assert heard == ["train_begin", "counted_begin", "step_end", "step_end", "counted_end"]


@pytest.mark.parametrize("total", [1, 2, 3])
def test_a_short_training_still_has_a_counted_step(total: int) -> None:
    heard, _ = moments(warmup_steps=5, total_steps=total)
    assert heard.count("step_end") == total
    assert heard[-3:] == ["counted_begin", "step_end", "counted_end"]


def test_enough_ends_the_measurement_early() -> None:
    heard, _ = moments(warmup_steps=1, total_steps=100, enough_after=4)
    assert heard.count("step_end") == 4
    assert heard[-1] == "counted_end"


def test_enough_is_not_asked_before_a_step_has_counted() -> None:
    heard, _ = moments(warmup_steps=3, total_steps=100, enough_after=1)
    assert heard.count("step_end") == 4


def trained(clock: Clock, trackers: list[Tracker], *, accumulation: int = 1, padded: bool = False) -> None:
    """A training of 1 warm-up step of 5 s and 3 counted ones of 1 s, a fifth of it waiting; 2 × 10 tokens a batch."""
    meter = Meter(trackers, lambda name: None, warmup_steps=1, total_steps=4, device=CPU)
    inputs = {"input_ids": torch.zeros(2, 10, dtype=torch.int64), "labels": torch.zeros(2)}
    if padded:
        inputs["attention_mask"] = torch.tensor([[1] * 10, [1] * 5 + [0] * 5])
    meter.train_begin()
    done = False
    while not done:
        seconds = 5.0 if clock.now == 1000.0 else 1.0
        meter.data_wait(seconds / 5)
        clock.now += seconds
        for _ in range(accumulation):
            meter.micro_batch(inputs)
            meter.loss(torch.tensor(2.0 / accumulation))
        done = meter.step_end()


def test_rates_are_totals_over_the_counted_time(clock: Clock) -> None:
    steps = Steps()
    trained(clock, [steps], accumulation=3, padded=True)
    found = steps.measurements()
    assert found["steps_counted"] == 3
    assert found["warmup_steps"] == 1
    assert found["counted_seconds"] == pytest.approx(3.0)
    assert found["samples_per_second"] == pytest.approx(6.0)
    assert found["tokens_per_second"] == pytest.approx(60.0)
    assert found["real_tokens_per_second"] == pytest.approx(45.0)
    assert found["step_seconds_median"] == pytest.approx(1.0)
    assert found["step_seconds_iqr"] == pytest.approx(0.0)
    assert found["data_seconds_median"] == pytest.approx(0.2)
    assert found["first_step_seconds"] == pytest.approx(5.0)
    assert found["samples_per_second_error"] == pytest.approx(0.0)
    assert steps.series()["step_seconds"] == pytest.approx([5.0, 1.0, 1.0, 1.0])
    assert steps.series()["data_seconds"] == pytest.approx([1.0, 0.2, 0.2, 0.2])
    assert steps.counted_so_far() == pytest.approx([1.0, 1.0, 1.0])


def test_without_a_mask_every_token_is_real(clock: Clock) -> None:
    steps = Steps()
    trained(clock, [steps])
    found = steps.measurements()
    assert found["real_tokens_per_second"] == found["tokens_per_second"] == pytest.approx(20.0)


def test_a_steps_loss_is_the_sum_of_its_micro_batches(clock: Clock) -> None:
    losses = Losses()
    trained(clock, [losses], accumulation=4)
    assert losses.series() == {"loss": [2.0] * 4}
    assert losses.measurements() == {"loss_first": 2.0, "loss_last": 2.0}


def test_an_interrupted_training_keeps_its_steps_and_has_no_rates(clock: Clock) -> None:
    steps = Steps()
    meter = Meter([steps], lambda name: None, warmup_steps=1, total_steps=10, device=CPU)
    meter.train_begin()
    clock.now += 2.0
    meter.step_end()
    assert steps.measurements() == {"first_step_seconds": 2.0}
    assert steps.counted_so_far() == []
