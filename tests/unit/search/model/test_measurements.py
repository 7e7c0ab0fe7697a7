"""A candidate's repeats as one measurement."""

import math
from typing import Any

import pytest

from jobs.record import Outcome
from orchestrator.search.model.measurements import measurement_of
from tests.support.records import make_record

FIGURES = {
    "device_peak_bytes": 100,
    "samples_per_second": 8.0,
    "samples_per_second_ci95": 0.01,
    "launch_bound_forward_share": 0.1,
    "launch_bound_update_share": 0.0,
    "step_seconds_median": 1.0,
    "data_seconds_median": 0.2,
}


def record(**figures: Any) -> Any:
    return make_record(measurements={**FIGURES, **figures})


@pytest.mark.parametrize("speed", [None, 0.0, -1.0, math.nan, math.inf])
def test_a_trial_without_a_speed_is_no_measurement(speed):
    assert measurement_of([record(samples_per_second=speed)]) is None


def test_a_trial_that_failed_is_no_measurement():
    assert measurement_of([make_record(outcome=Outcome.FAILED, measurements=FIGURES)]) is None


def test_repeats_are_their_worst_figures_and_their_median_speed():
    repeats = [
        record(),
        record(samples_per_second=6.0, device_peak_bytes=120, samples_per_second_ci95=0.03),
        record(samples_per_second=7.0, launch_bound_forward_share=0.3, data_seconds_median=0.1),
    ]
    found = measurement_of(repeats)
    assert (found.memory_bytes, found.samples_per_second) == (120, 7.0)
    assert (found.speed_ci95, found.launch_bound_share) == (0.03, 0.3)
    assert found.data_share == pytest.approx(0.2)
    assert found.trial_id == repeats[0].trial_id


@pytest.mark.parametrize(("seconds", "share"), [(None, 0.0), (0.25, 0.25), (3.0, 1.0)])
def test_share_of_data_is_that_of_a_step(seconds, share):
    found = measurement_of([record(data_seconds_median=seconds)])
    assert found.data_share == share
