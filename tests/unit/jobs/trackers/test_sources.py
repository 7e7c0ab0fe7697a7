"""Samples, tokens and losses of micro-batches, and readings over time."""

import time

import pytest
import torch

from jobs.trackers.sources.micro_batches import MicroBatches
from jobs.trackers.sources.series import TimeSeries
from jobs.trackers.step_losses import Losses
from tests.support.clock import Clock


def test_real_tokens_of_batches_with_and_without_a_mask():
    batches = MicroBatches()
    # Neither a scalar nor what is no tensor has the batch's size.
    others = {"scale": 3, "num_items_in_batch": torch.tensor(7)}
    whole = {**others, "input_ids": torch.ones(2, 12, dtype=torch.int64)}
    padded = {**whole, "attention_mask": torch.tensor([[1] * 12, [1] * 6 + [0] * 6])}
    for inputs in (padded, whole, padded, whole):
        batches.add(inputs)
    assert batches.rates(2, seconds=2.0, expected=(3.0, 0.5, 0.7)) == {
        "samples_per_second": 4.0 * 0.7 / 2,
        "tokens_per_second": 48.0 * 3 / 2,
        "real_tokens_per_second": (18.0 + 24.0) * 0.5 / 2,
    }


def test_samples_that_a_collator_counts_on_the_device():
    batches = MicroBatches()
    for rows in (3, 2**24 + 1):  # float32 has no such integer
        batches.add({"pixel_values": torch.ones(1, 8)}, lambda _, rows=rows: torch.tensor(rows))
    assert batches.rates(1, seconds=2.0) == {"samples_per_second": (2**24 + 1) / 2}


def test_losses_are_sums_over_the_micro_batches_of_each_step():
    tracker = Losses()
    for losses in ((0.25, 0.5), (), (1.5,), (0.125, 0.25)):
        for loss in losses:
            tracker.loss(torch.tensor(loss))
        tracker.step_end()
    assert tracker.series() == {"loss": [0.75, 1.5, 0.375]}
    assert tracker.measurements() == {"loss_first": 0.75, "loss_last": 0.375}


@pytest.fixture
def series(monkeypatch: pytest.MonkeyPatch) -> TimeSeries:
    """0, 10 and 30, read at 1000, 1001 and 1002 seconds."""
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    series = TimeSeries()
    for value in (0.0, 10.0, 30.0):
        series.append(value)
        clock.now += 1.0
    return series


def test_time_series_between_includes_both_ends(series):
    assert series.between(1000.0, 1001.0) == [0.0, 10.0]
    assert series.between(1000.5, 1000.6) == []


@pytest.mark.parametrize(
    ("begin", "end", "growth"), [(1000.5, 1001.5, 15.0), (990.0, 2000.0, 30.0), (1001, 1001, 0.0)]
)
def test_time_series_growth_is_interpolated(begin, end, growth, series):
    assert series.growth(begin, end) == pytest.approx(growth)
