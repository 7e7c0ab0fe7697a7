"""What the meter reports of a training, when it stops, and the rates that follow."""

import time
from collections.abc import Sequence

import pytest
import torch

from jobs.loops.meter import Meter
from jobs.steady_state import mean_step_error
from jobs.trackers import Moment, Steps, Tracker
from jobs.trackers.step_losses import Losses
from tests.support.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
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


def train(
    clock: Clock,
    seconds: Sequence[float],
    *trackers: Tracker,
    warmup_steps: int = 1,
    total_steps: int | None = None,
    relative_error: float = 0.0,
    accumulation: int = 1,
) -> tuple[Steps, list[str]]:
    """Steps of so many seconds, a fifth of them for data, until the meter stops.

    A micro-batch has two samples of ten tokens, five of which are padding. Returns the tracker of
    the steps, and what was announced.
    """
    steps = Steps()
    announced = []
    meter = Meter(
        [*trackers, steps],
        announced.append,
        warmup_steps=warmup_steps,
        total_steps=total_steps or len(seconds),
        relative_error=relative_error,
        device=torch.device("cpu"),
    )
    inputs = {
        "input_ids": torch.zeros(2, 10, dtype=torch.int64),
        "attention_mask": torch.tensor([[1] * 10, [1] * 5 + [0] * 5]),
    }
    meter.train_begin()
    for step_seconds in seconds:
        meter.data_wait(step_seconds / 5)
        clock.now += step_seconds
        for _ in range(accumulation):
            meter.micro_batch(inputs)
            meter.loss(torch.tensor(2.0 / accumulation))
        if meter.step_end():
            break
    return steps, announced


def test_meter_counts_the_steps_after_the_warm_up(clock):
    recorder = Recorder()
    _, announced = train(clock, [9.0, 1.0, 2.0, 3.0], recorder, warmup_steps=2)
    assert recorder.reports == [
        "train_begin",
        *("step_begin 2", "data_wait", "loss", "step_end"),
        *("step_begin 1", "data_wait", "loss", "step_end"),
        *("step_begin 0", "data_wait", "loss", "step_end"),
        *("step_begin 0", "data_wait", "loss", "step_end"),
        "counted 1010 to 1015",
    ]
    assert announced == ["first_step", "warm_up", "steps"]


@pytest.mark.parametrize("total", [1, 2, 3])
def test_meter_of_a_short_training_counts_one_step(clock, total):
    steps, announced = train(clock, [1.0] * total, warmup_steps=5)
    assert announced[:2] == ["first_step", "warm_up"]
    assert len(steps.series()["step_seconds"]) == total
    assert steps.measurements()["steps_counted"] == 1


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
    clock, seconds, relative_error, warmup, counted, counted_seconds
):
    steps, _ = train(clock, seconds, relative_error=relative_error)
    values = steps.measurements()
    assert (values["warmup_steps"], values["steps_counted"]) == (warmup, counted)
    assert values["counted_seconds"] == pytest.approx(counted_seconds)
    assert values["samples_per_second"] == pytest.approx(2 * counted / counted_seconds)


def test_rates_are_totals_and_losses_sums_over_the_micro_batches(clock):
    losses = Losses()
    steps, _ = train(clock, [5.0, 1.0, 1.0, 1.0], losses, accumulation=3)
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
    assert losses.series() == {"loss": pytest.approx([2.0] * 4)}
    assert losses.measurements() == pytest.approx({"loss_first": 2.0, "loss_last": 2.0})


def test_steps_of_an_interrupted_training_have_no_rates(clock):
    steps, _ = train(clock, [2.0], total_steps=10)
    assert steps.measurements() == {"first_step_seconds": 2.0}
