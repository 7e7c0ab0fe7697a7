"""Readings over time: values within a window, and growth over it."""

from __future__ import annotations

import time

import pytest

from jobs.trackers.sources.time_series import TimeSeries
from tests.support.clock import Clock


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


def test_time_series_between_includes_both_ends(series: TimeSeries) -> None:
    assert series.between(1000.0, 1001.0) == [0.0, 10.0]
    assert series.between(1000.5, 1000.6) == []


@pytest.mark.parametrize(
    ("begin", "end", "growth"), [(1000.5, 1001.5, 15.0), (990.0, 2000.0, 30.0), (1001, 1001, 0.0)]
)
def test_time_series_growth_is_interpolated(
    begin: float, end: float, growth: float, series: TimeSeries
) -> None:
    assert series.growth(begin, end) == pytest.approx(growth)
