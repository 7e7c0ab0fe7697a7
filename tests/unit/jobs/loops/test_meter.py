"""What the meter reports of a training, when it stops, and the rates that follow."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from jobs.loops.meter import Meter
from jobs.steady_state import mean_step_error
from jobs.trackers import Moment, Steps, Tracker
from jobs.trackers.step_losses import Losses
from tests.support.clock import Clock

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the meter and of the trackers."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


class Recorder(Tracker):
    """Writes down everything that is reported but micro-batches."""

    def __init__(self) -> None:
        self.reports: list[str] = []

    def at(self, moment: Moment, seconds: float) -> None:
        self.reports.append(moment.value)

    def data_wait(self, seconds: float) -> None:
        self.reports.append("data_wait")

    def loss(self, value: torch.Tensor) -> None:
        self.reports.append("loss")

    def step_begin(self, warmup_left: int) -> None:
        self.reports.append(f"step_begin {warmup_left}")

    def step_end(self) -> None:
        self.reports.append("step_end")

    def counted(self, begin: float, end: float) -> None:
        self.reports.append(f"counted {begin:g} to {end:g}")


@dataclass(frozen=True, kw_only=True)
class Training:
    """What was reported until the meter stopped."""

    reports: list[str]
    announced: list[str]
    values: Mapping[str, Any]


def train(
    clock: Clock, seconds: Sequence[float], *, warmup_steps: int, relative_error: float = 0.0
) -> Training:
    """Steps of so many seconds, with two samples of ten tokens each, until the meter stops."""
    recorder = Recorder()
    steps = Steps()
    announced: list[str] = []
    meter = Meter(
        [recorder, steps],
        announced.append,
        warmup_steps=warmup_steps,
        total_steps=len(seconds),
        relative_error=relative_error,
        device=CPU,
    )
    meter.train_begin()
    for step_seconds in seconds:
        meter.micro_batch({"input_ids": torch.zeros(2, 10)})
        clock.now += step_seconds
        if meter.step_end():
            break
    return Training(reports=recorder.reports, announced=announced, values=steps.measurements())


def test_meter_counts_the_steps_after_the_warm_up(clock: Clock) -> None:
    training = train(clock, [9.0, 1.0, 2.0, 3.0], warmup_steps=2)
    assert training.reports == [
        "train_begin",
        *("step_begin 2", "step_end"),
        *("step_begin 1", "step_end"),
        *("step_begin 0", "step_end"),
        *("step_begin 0", "step_end"),
        "counted 1010 to 1015",
    ]
    assert training.announced == ["first_step", "warm_up", "steps"]


@pytest.mark.parametrize("total", [1, 2, 3])
def test_meter_of_a_short_training_counts_one_step(clock: Clock, total: int) -> None:
    training = train(clock, [1.0] * total, warmup_steps=5)
    assert training.announced[:2] == ["first_step", "warm_up"]
    assert training.reports.count("step_end") == total
    assert training.values["steps_counted"] == 1


@pytest.mark.parametrize(
    ("seconds", "relative_error", "warmup", "counted", "counted_seconds"),
    [
        pytest.param([9.0, *[1.0] * 100], 0.01, 1, 3, 3.0, id="mean_is_known"),
        pytest.param([9.0, *[0.125] * 100], 0.05, 1, 8, 1.0, id="a_second_without_a_gpu"),
        pytest.param([9.0, *[1.0, 1.1] * 5], 0.01, 1, 4, 4.2, id="mean_would_not_settle"),
        pytest.param([9.0, 5.0, *[1.0] * 9], 0.01, 2, 3, 3.0, id="unsteady_steps_left_out"),
        pytest.param([9.0, 0.5, *[0.1] * 3], 0.0, 1, 4, 0.8, id="every_step_without_an_error"),
    ],
)
def test_meter_stops_as_soon_as_more_steps_would_tell_no_more(
    clock: Clock,
    seconds: list[float],
    relative_error: float,
    warmup: int,
    counted: int,
    counted_seconds: float,
) -> None:
    values = train(clock, seconds, warmup_steps=1, relative_error=relative_error).values
    assert (values["warmup_steps"], values["steps_counted"]) == (warmup, counted)
    assert values["counted_seconds"] == pytest.approx(counted_seconds)
    assert values["samples_per_second"] == pytest.approx(2 * counted / counted_seconds)


def run_four_steps(
    clock: Clock, trackers: Sequence[Tracker], *, accumulation: int = 1, padded: bool = False
) -> None:
    """A warm-up step of 5 s and three counted steps of 1 s; a fifth of each waits for data.

    A micro-batch has two samples of ten tokens; padding makes five of the twenty unreal.
    """
    meter = Meter(trackers, lambda phase: None, warmup_steps=1, total_steps=4, device=CPU)
    inputs = {"input_ids": torch.zeros(2, 10, dtype=torch.int64), "labels": torch.zeros(2)}
    if padded:
        inputs["attention_mask"] = torch.tensor([[1] * 10, [1] * 5 + [0] * 5])
    meter.train_begin()
    for seconds in (5.0, 1.0, 1.0, 1.0):
        meter.data_wait(seconds / 5)
        clock.now += seconds
        for _ in range(accumulation):
            meter.micro_batch(inputs)
            meter.loss(torch.tensor(2.0 / accumulation))
        is_complete = meter.step_end()
    assert is_complete


def test_steps_rates_are_totals_over_the_counted_time(clock: Clock) -> None:
    steps = Steps()
    run_four_steps(clock, [steps], accumulation=3, padded=True)
    assert steps.measurements() == pytest.approx(
        {
            "steps_counted": 3,
            "warmup_steps": 1,
            "counted_seconds": 3.0,
            "samples_per_second": 6.0,
            "tokens_per_second": 60.0,
            "real_tokens_per_second": 45.0,
            "step_seconds_median": 1.0,
            "data_seconds_median": 0.2,
            "first_step_seconds": 5.0,
            "samples_per_second_ci95": mean_step_error([1.0] * 3),
        }
    )
    assert steps.series()["step_seconds"] == pytest.approx([5.0, 1.0, 1.0, 1.0])
    assert steps.series()["data_seconds"] == pytest.approx([1.0, 0.2, 0.2, 0.2])


def test_losses_add_up_the_micro_batches_of_a_step(clock: Clock) -> None:
    losses = Losses()
    run_four_steps(clock, [Steps(), losses], accumulation=4)
    assert losses.series() == {"loss": [2.0] * 4}
    assert losses.measurements() == {"loss_first": 2.0, "loss_last": 2.0}


def test_steps_of_an_interrupted_training_have_no_rates(clock: Clock) -> None:
    steps = Steps()
    meter = Meter([steps], lambda phase: None, warmup_steps=1, total_steps=10, device=CPU)
    meter.train_begin()
    clock.now += 2.0
    meter.step_end()
    assert steps.measurements() == {"first_step_seconds": 2.0}
