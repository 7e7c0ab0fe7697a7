"""What a meter tells of a training, when it has enough, and the rates that the step tracker makes of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from jobs.loops.meter import Meter
from jobs.steady_state import mean_step_error
from jobs.trackers import Moment, Steps, Tracker
from jobs.trackers.losses import Losses
from tests.support.clock import Clock

CPU = torch.device("cpu")


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

    def step_begin(self, warmup_left: int) -> None:
        self.heard.append(f"step_begin {warmup_left}")

    def step_end(self) -> None:
        self.heard.append("step_end")

    def counted(self, begin: float, end: float) -> None:
        self.heard.append(f"counted {begin:g} to {end:g}")


def heard(
    clock: Clock, seconds: list[float], *, warmup_steps: int, relative_error: float = 0.0
) -> tuple[list[str], list[str], Steps]:
    """What trackers hear and what is announced when steps take so long, until the meter has enough."""
    recorder, steps, announced = Recorder(), Steps(), list[str]()
    meter = Meter(
        [recorder, steps],
        announced.append,
        warmup_steps=warmup_steps,
        total_steps=len(seconds),
        relative_error=relative_error,
        device=CPU,
    )
    meter.train_begin()
    for one in seconds:
        meter.micro_batch({"input_ids": torch.zeros(2, 10)})
        clock.now += one
        if meter.step_end():
            break
    return [said for said in recorder.heard if said != "micro_batch"], announced, steps


def test_the_counted_steps_begin_after_the_warm_up(clock: Clock) -> None:
    said, announced, _ = heard(clock, [9.0, 1.0, 2.0, 3.0], warmup_steps=2)
    assert said == [
        "train_begin",
        *("step_begin 2", "step_end"),
        *("step_begin 1", "step_end"),
        *("step_begin 0", "step_end"),
        *("step_begin 0", "step_end"),
        "counted 1010 to 1015",
    ]
    assert announced == ["first_step", "warm_up", "steps"]


@pytest.mark.parametrize("total", [1, 2, 3])
def test_a_short_training_still_has_a_counted_step(clock: Clock, total: int) -> None:
    said, _, steps = heard(clock, [1.0] * total, warmup_steps=5)
    assert said.count("step_end") == total
    assert steps.measurements()["steps_counted"] == 1


def test_a_known_mean_ends_the_measurement_early(clock: Clock) -> None:
    said, _, steps = heard(clock, [9.0, *[0.1] * 100], warmup_steps=1, relative_error=0.01)
    assert said.count("step_end") == 4
    assert steps.measurements()["samples_per_second"] == pytest.approx(20.0)


def test_a_measurement_that_would_not_tell_the_mean_is_given_up_and_says_what_it_knows(
    clock: Clock,
) -> None:
    _, _, steps = heard(clock, [9.0, *[1.0, 1.1] * 5], warmup_steps=1, relative_error=0.01)
    found = steps.measurements()
    assert found["steps_counted"] == 4
    assert found["samples_per_second_ci95"] > 0.01


def test_steps_that_are_not_steady_yet_do_not_count(clock: Clock) -> None:
    _, _, steps = heard(clock, [9.0, 0.5, *[0.1] * 9], warmup_steps=1, relative_error=0.01)
    found = steps.measurements()
    assert (found["warmup_steps"], found["steps_counted"]) == (2, 3)
    assert found["samples_per_second"] == pytest.approx(20.0)


def test_every_step_counts_where_no_error_was_asked_for(clock: Clock) -> None:
    _, _, steps = heard(clock, [9.0, 0.5, *[0.1] * 3], warmup_steps=1)
    assert steps.measurements()["steps_counted"] == 4


def trained(
    clock: Clock, trackers: list[Tracker], *, accumulation: int = 1, padded: bool = False
) -> None:
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
    assert found["samples_per_second_ci95"] == pytest.approx(mean_step_error([1.0] * 3))
    assert steps.series()["step_seconds"] == pytest.approx([5.0, 1.0, 1.0, 1.0])
    assert steps.series()["data_seconds"] == pytest.approx([1.0, 0.2, 0.2, 0.2])


def test_without_a_mask_every_token_is_real(clock: Clock) -> None:
    steps = Steps()
    trained(clock, [steps])
    found = steps.measurements()
    assert found["real_tokens_per_second"] == found["tokens_per_second"] == pytest.approx(20.0)


def test_a_steps_loss_is_the_sum_of_its_micro_batches(clock: Clock) -> None:
    losses = Losses()
    trained(clock, [Steps(), losses], accumulation=4)
    assert losses.series() == {"loss": [2.0] * 4}
    assert losses.measurements() == {"loss_first": 2.0, "loss_last": 2.0}


def test_an_interrupted_training_keeps_its_steps_and_has_no_rates(clock: Clock) -> None:
    steps = Steps()
    meter = Meter([steps], lambda name: None, warmup_steps=1, total_steps=10, device=CPU)
    meter.train_begin()
    clock.now += 2.0
    meter.step_end()
    assert steps.measurements() == {"first_step_seconds": 2.0}
