"""What limits a speed, and by how much another trial of the same configuration can differ."""

import math
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.analysis.repeatability import (
    BETWEEN_TRIALS,
    UNKNOWN_ERROR,
    Pace,
    SpeedError,
    difference_error,
    energy_error,
    pace_of,
    speed_error,
)

GPU: dict[str, Any] = {
    "gpu_model": "NVIDIA H200",
    "host_bound_share": 0.0,
    "launch_bound_forward_share": 0.0,
    "launch_bound_update_share": 0.0,
    "step_seconds_median": 1.0,
}


def row(**changes: Any) -> dict[str, Any]:
    """A GPU-bound row of a second a step, whose own steps have no scatter."""
    speed = {"samples_per_second": 8.0, "effective_batch": 8, "samples_per_second_ci95": 0.0}
    return {**GPU, **speed, **changes}


@pytest.mark.parametrize(
    ("changes", "pace"),
    [
        ({}, Pace.GPU),
        ({"host_bound_share": 0.05}, Pace.GPU),
        ({"host_bound_share": 0.051}, Pace.HOST),
        ({"host_bound_share": None}, Pace.GPU),
        ({"data_seconds_median": 0.06, "step_gap_seconds_median": 0.07}, Pace.HOST),
        ({"data_seconds_median": 0.06, "step_gap_seconds_median": 0.04}, Pace.GPU),
        ({"launch_bound_update_share": 0.05}, Pace.GPU),
        ({"launch_bound_update_share": 0.051}, Pace.LAUNCHES),
        ({"gpu_model": None, "host_bound_share": 0.9}, Pace.CPU),
        # A table that does not record launches may hold a GPU-bound row.
        ({"launch_bound_update_share": None}, Pace.LAUNCHES),
    ],
)
def test_pace_of_a_row_is_what_it_waits_for(changes, pace):
    assert pace_of(row(**changes)) is pace


def test_speed_error_adds_the_variation_between_trials_to_that_of_the_steps():
    between = math.hypot(0.0016, 0.0021)
    assert speed_error([row()]).standard_error == pytest.approx(between)
    with_steps = speed_error([row(samples_per_second_ci95=0.0196)])
    assert with_steps.standard_error == pytest.approx(math.hypot(0.01, between))
    assert with_steps.degrees_of_freedom == 7.0
    # The constant part is a larger share of a shorter step, but never above a host-bound row's.
    tenth = row(samples_per_second=80.0)
    assert speed_error([tenth]).standard_error == pytest.approx(math.hypot(0.0016, 0.021))
    shortest = row(samples_per_second=8e6)
    assert speed_error([shortest]).standard_error == BETWEEN_TRIALS[Pace.HOST].relative


def test_speed_error_of_repeats_falls_with_the_square_root_of_their_number():
    single, four = speed_error([row()]), speed_error([row()] * 4)
    assert four.standard_error == pytest.approx(single.standard_error / 2)
    mixed = speed_error([row(), row(launch_bound_update_share=None)])
    assert mixed.degrees_of_freedom == BETWEEN_TRIALS[Pace.LAUNCHES].degrees_of_freedom
    assert speed_error([row(), row(samples_per_second_ci95=None)]).standard_error == math.inf


@pytest.mark.parametrize(("trials", "factor"), [(1, 2), (4, 5)])
def test_another_trial_adds_its_own_variation_to_that_of_the_mean(trials, factor):
    mean = speed_error([row()] * trials)
    single = speed_error([row()])
    difference = math.hypot(mean.standard_error, single.standard_error)
    assert difference == pytest.approx(mean.standard_error * math.sqrt(factor))
    another = mean.of_another_trial(trials)
    # Repeats of one run share what differs between runs, so their number does not reduce it.
    between_runs = BETWEEN_TRIALS[Pace.GPU].between_runs
    # A step of a second may become longer by (23 ms)² of it, on a host that is too slow for it.
    slow_host = BETWEEN_TRIALS[Pace.GPU].slow_host_seconds ** 2
    expected = math.hypot(difference, between_runs, slow_host)
    assert another.standard_error == pytest.approx(expected)
    assert another.degrees_of_freedom == mean.degrees_of_freedom
    assert math.isinf(UNKNOWN_ERROR.of_another_trial().half_width95)


def test_difference_error_adds_the_variances():
    error = difference_error(SpeedError(0.03, 8.0), SpeedError(0.04, 30.0))
    assert (error.standard_error, error.degrees_of_freedom) == (pytest.approx(0.05), 8.0)
    assert difference_error(
        SpeedError(0.03, 8.0, 0.007), SpeedError(0.04, 8.0, 0.02)
    ).of_another_run().standard_error == pytest.approx(math.hypot(0.05, 0.02))
    # Student's t with 8 degrees of freedom: 97.5 % lie below 2.306.
    assert error.half_width95 == pytest.approx(0.05 * 2.306, rel=1e-3)


def test_energy_of_short_trials_is_known_less_well_because_the_sensor_lags():
    short, long = (energy_error(row(counted_seconds=seconds)) for seconds in (0.29, 29.0))
    assert short.standard_error == pytest.approx(0.1, rel=0.01)
    assert long.standard_error == pytest.approx(math.hypot(0.0026, 0.001))
    assert math.isinf(energy_error(row(gpu_model=None, counted_seconds=1.0)).standard_error)
    assert math.isinf(energy_error(row()).standard_error)


def test_another_trial_of_short_steps_may_meet_a_host_that_is_too_slow():
    shortest, short, long = (
        speed_error([row(samples_per_second=8 / seconds)]) for seconds in (0.001, 0.1, 10.0)
    )
    assert short.slow_host == pytest.approx(0.23**2)
    assert long.slow_host == pytest.approx(0.0023**2)
    assert shortest.slow_host == BETWEEN_TRIALS[Pace.HOST].between_runs
    # Two runs whose rows are compared have both been seen.
    known = replace(short, slow_host=0.0)
    assert short.of_another_run() == replace(known.of_another_run(), slow_host=short.slow_host)
    assert short.of_another_trial().half_width95 > 1.5 * known.of_another_trial().half_width95
    energy = energy_error(row(samples_per_second=80.0, counted_seconds=5.0))
    assert energy.slow_host == pytest.approx(0.213**2)


@pytest.mark.parametrize("error_of", [lambda own: speed_error([own]), energy_error])
def test_error_of_host_bound_rows_grows_with_their_waits(error_of):
    shares = (0.06, 0.2, 0.6, 1.0)
    errors = [error_of(row(host_bound_share=share, counted_seconds=100.0)) for share in shares]
    scales = [own.of_another_trial().standard_error for own in errors]
    assert scales == sorted(set(scales))
    assert errors[-1].between_runs > errors[0].between_runs
