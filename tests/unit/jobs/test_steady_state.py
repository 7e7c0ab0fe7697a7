"""When enough steps were measured, and the flags of a row that is not reliable."""

import math
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.flags import Flag, FlagKind
from jobs.steady_state import (
    HOST_BOUND,
    MIN_STEPS_TO_GIVE_UP,
    PRIOR_SECONDS,
    PRIOR_SPREAD,
    data_wait_share,
    flags,
    is_enough_of_the_host,
    is_out_of_reach,
    is_settled,
    launch_bound_share,
    mean_step_error,
    relative_half_width,
    steady_from,
    wanted_error,
)

SECONDS = st.floats(min_value=1e-4, max_value=1e3)
STEADY: dict[str, Any] = {
    "half_width": 0.001,
    "relative_error": 0.02,
    "host_bound_share": 0.1,
    "allocator_retries": 0,
}


@pytest.mark.parametrize("seconds", [[], [0.1]])
def test_interval_of_too_few_steps_is_infinite(seconds):
    assert relative_half_width(seconds) == mean_step_error(seconds) == math.inf


def test_interval_is_students():
    # scipy.stats.t.interval(0.95, 3, loc=1.0, scale=sem([0.9, 1.0, 1.1, 1.0])) is 1 ± 0.12992
    assert relative_half_width([0.9, 1.0, 1.1, 1.0]) == pytest.approx(0.12992, rel=2e-3)
    # scipy.stats.t.ppf(0.975, 1) is 12.7062; the standard error of the two is 0.1.
    assert relative_half_width([0.9, 1.1]) == pytest.approx(1.27062, rel=1e-4)


def test_prior_spread_is_worth_one_degree_of_freedom():
    steps = [0.099, 0.1, 0.101]
    mean = 0.1
    # The root of the variance: the prior has one degree of freedom, the three steps two.
    scale = math.sqrt((PRIOR_SPREAD**2 + 2 * statistics.variance(steps) / mean**2) / 3)
    # scipy.stats.t.ppf(0.975, 3) is 3.1824463
    assert mean_step_error(steps) == pytest.approx(3.1824463 * scale / math.sqrt(3))


@pytest.mark.parametrize(("seconds", "fewest"), [(0.01, 3), (0.5, 3), (1.5, 2), (8.0, 2)])
def test_is_settled_after_fewer_steps_if_they_are_long(seconds, fewest):
    for steps in (1, 2, 3):
        assert is_settled([seconds] * steps, 0.01) is (steps >= fewest)
    assert not is_settled([seconds, 1.02 * seconds], 0.01)


@given(st.floats(min_value=0.001, max_value=20), st.integers(min_value=2, max_value=30))
def test_prior_spread_of_a_long_step_is_milliseconds(seconds, steps):
    usual = min(PRIOR_SPREAD, PRIOR_SECONDS / seconds)
    # Equal steps have no spread of their own: the interval is the prior's.
    error_of_short_steps = mean_step_error([0.001] * steps)
    expected = error_of_short_steps * usual / PRIOR_SPREAD
    assert mean_step_error([seconds] * steps) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        ([], 0),
        ([1.0], 0),
        ([1.1, 1.0], 0),
        ([1.5, 1.2, 1.0, 1.0, 1.0, 1.0], 2),
        ([0.5, 1.0, 1.0, 1.0], 1),
        ([1.005, 1.0, 1.0, 1.0], 0),
        ([1.1, 1.0, 1.2, 0.9], 0),
    ],
)
def test_steady_from_leaves_out_steps_unlike_later_ones(seconds, first):
    assert steady_from(seconds, 0.01) == first


@given(st.lists(SECONDS, min_size=1, max_size=40), st.floats(min_value=0, max_value=0.5))
def test_steady_from_keeps_at_least_half(seconds, relative_error):
    assert steady_from(seconds, relative_error) <= len(seconds) // 2
    assert steady_from(seconds, 0.0) == 0
    assert not is_settled(seconds, 0.0)


NOISY = [0.71, 0.74, 0.793, 0.715]
"""Steps of a measured trial: ten such steps settle their mean to within ±3.5 %."""


@pytest.mark.parametrize(
    ("seconds", "relative_error", "is_given_up"),
    [
        (NOISY, 0.02, True),
        (NOISY, 0.04, False),
        (NOISY[: MIN_STEPS_TO_GIVE_UP - 1], 0.01, False),
        ([seconds / 3 for seconds in NOISY], 0.01, False),
        ([9.0, *[1.0] * MIN_STEPS_TO_GIVE_UP], 0.01, False),
    ],
)
def test_is_out_of_reach_for_long_steps_with_a_large_spread(seconds, relative_error, is_given_up):
    assert is_out_of_reach(seconds, relative_error, 10) is is_given_up


@pytest.mark.parametrize(
    ("seconds", "host_bound_share", "is_enough"),
    [
        (NOISY + NOISY, HOST_BOUND, False),
        (NOISY + NOISY[:1], 1.0, True),
        (NOISY, 1.0, False),
        ([9.0, *NOISY], 1.0, False),
    ],
)
def test_is_enough_of_the_host_after_some_steps(seconds, host_bound_share, is_enough):
    assert is_enough_of_the_host(seconds, 0.01, host_bound_share) is is_enough


@pytest.mark.parametrize(
    ("figures", "flag"),
    [
        # At the bounds.
        (
            {
                "host_bound_share": 0.5,
                "launch_bound_share": 0.1,
                "data_wait_share": 0.1,
                "allocator_retries": 1,
            },
            None,
        ),
        ({"new_shapes_share": 0.1}, None),
        ({"half_width": 0.02}, None),
        ({"half_width": 0.01, "relative_error": 0.001}, None),
        ({"half_width": 0.5, "relative_error": 0.0}, None),  # a fixed number of steps
        ({"host_bound_share": None}, None),  # no GPU
        # Beyond them.
        ({"half_width": 0.05}, Flag(FlagKind.UNSTABLE, 0.05)),
        ({"half_width": 0.011, "relative_error": 0.001}, Flag(FlagKind.UNSTABLE, 0.011)),
        ({"half_width": math.inf}, Flag(FlagKind.UNSTABLE, None)),
        ({"host_bound_share": 0.501}, Flag(FlagKind.HOST_BOUND, 0.501)),
        ({"host_bound_share": 0.9, "launch_bound_share": 0.3}, Flag(FlagKind.HOST_BOUND, 0.9)),
        ({"data_wait_share": 0.101}, Flag(FlagKind.DATA_BOUND, 0.101)),
        ({"launch_bound_share": 0.101}, Flag(FlagKind.LAUNCH_BOUND, 0.101)),
        ({"allocator_retries": 2}, Flag(FlagKind.THRASHING, 2)),
        ({"new_shapes_share": 0.101}, Flag(FlagKind.NEW_LENGTHS, 0.101)),
    ],
)
def test_flags_of_a_row_beyond_the_bounds(figures, flag):
    assert flags(**{**STEADY, **figures}) == ([] if flag is None else [flag])


@pytest.mark.parametrize(
    ("asked", "device_type", "wanted"),
    [(0.01, "cuda", 0.01), (0.01, "cpu", 0.05), (0.2, "cpu", 0.2), (0.0, "cpu", 0.0)],
)
def test_wanted_error_of_a_cpu_is_in_reach(asked, device_type, wanted):
    assert wanted_error(asked, device_type) == wanted


def test_launch_bound_share_adds_forward_passes_and_updates():
    row = {"launch_bound_forward_share": 0.2, "launch_bound_update_share": None}
    assert launch_bound_share(row) == 0.2
    assert launch_bound_share({**row, "launch_bound_update_share": 0.25}) == pytest.approx(0.45)
    assert launch_bound_share({}) == 0.0


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 0.75),
        ({"step_gap_seconds_median": 0.1}, 0.25),  # the loop runs ahead of the GPU
        ({"data_seconds_median": 0.02}, 0.05),
        ({"step_gap_seconds_median": None}, 0.0),  # no GPU
        ({"step_seconds_median": None}, 0.0),
    ],
)
def test_data_wait_share_is_the_part_of_the_gap_that_waits(changes, share):
    seconds = {
        "data_seconds_median": 0.3,
        "step_gap_seconds_median": 0.35,
        "step_seconds_median": 0.4,
    }
    assert data_wait_share({**seconds, **changes}) == pytest.approx(share)
