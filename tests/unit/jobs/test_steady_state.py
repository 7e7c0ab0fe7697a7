"""When enough steps have been measured, and the doubts that a row must carry."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.steady_state import (
    FEWEST_TO_GIVE_UP,
    HOST_BOUND,
    USUAL_SECONDS,
    USUAL_SPREAD,
    doubts,
    is_out_of_reach,
    is_settled,
    is_the_hosts,
    mean_step_error,
    onset,
    relative_half_width,
)

SECONDS = st.floats(min_value=1e-4, max_value=1e3)
NO_DOUBT: dict[str, Any] = {
    "half_width": 0.001,
    "relative_error": 0.02,
    "host_bound_share": 0.1,
    "allocator_retries": 0,
}


@pytest.mark.parametrize("seconds", [[], [0.1]])
def test_too_few_steps_say_nothing(seconds: list[float]) -> None:
    assert relative_half_width(seconds) == mean_step_error(seconds) == math.inf


def test_the_interval_is_students() -> None:
    # scipy.stats.t.interval(0.95, 3, loc=1.0, scale=sem([0.9, 1.0, 1.1, 1.0])) is 1 ± 0.12992
    assert relative_half_width([0.9, 1.0, 1.1, 1.0]) == pytest.approx(0.12992, rel=2e-3)


def test_many_steps_use_the_normal_limit() -> None:
    seconds = [0.9, 1.1] * 50
    assert relative_half_width(seconds) == pytest.approx(2.0 * statistics.stdev(seconds) / 10.0)


@given(st.lists(SECONDS, min_size=2, max_size=40), st.floats(min_value=0.1, max_value=10))
def test_the_interval_does_not_depend_on_the_unit(seconds: list[float], unit: float) -> None:
    assert relative_half_width([s * unit for s in seconds]) == pytest.approx(
        relative_half_width(seconds), abs=1e-9
    )


@given(st.integers(min_value=2, max_value=60))
def test_more_of_the_same_narrows_the_interval(pairs: int) -> None:
    assert relative_half_width([0.9, 1.1] * (pairs + 1)) < relative_half_width([0.9, 1.1] * pairs)


def test_the_usual_spread_is_worth_one_degree_of_freedom() -> None:
    steps, mean = [0.099, 0.1, 0.101], 0.1
    scale = math.sqrt((USUAL_SPREAD**2 + 2 * statistics.variance(steps) / mean**2) / 3)
    # scipy.stats.t.ppf(0.975, 3) is 3.18
    assert mean_step_error(steps) == pytest.approx(3.18 * scale / math.sqrt(3))


@pytest.mark.parametrize(("seconds", "fewest"), [(0.01, 3), (0.5, 3), (1.5, 2), (8.0, 2)])
def test_few_steps_that_are_alike_prove_little_and_two_long_ones_much(
    seconds: float, fewest: int
) -> None:
    assert [is_settled([seconds] * steps, 0.01) for steps in (1, 2, 3)] == [
        steps >= fewest for steps in (1, 2, 3)
    ]
    assert not is_settled([seconds, 1.02 * seconds], 0.01)


def test_a_spread_beyond_the_usual_needs_as_many_steps_as_students_interval() -> None:
    steps = [0.9, 1.0, 1.1, 1.0] * 5
    assert mean_step_error(steps) == pytest.approx(relative_half_width(steps), rel=0.03)


@given(st.floats(min_value=0.001, max_value=20), st.integers(min_value=2, max_value=30))
def test_the_usual_spread_of_a_long_step_is_some_milliseconds(seconds: float, steps: int) -> None:
    usual = min(USUAL_SPREAD, USUAL_SECONDS / seconds)
    assert mean_step_error([seconds] * steps) == pytest.approx(
        mean_step_error([0.001] * steps) * usual / USUAL_SPREAD
    )


@pytest.mark.parametrize(
    ("seconds", "first"),
    [
        ([], 0),
        ([1.0], 0),
        ([1.1, 1.0], 0),
        ([1.0, 1.0, 1.0, 1.0], 0),
        ([1.5, 1.2, 1.0, 1.0, 1.0, 1.0], 2),
        ([0.5, 1.0, 1.0, 1.0], 1),
        ([1.005, 1.0, 1.0, 1.0], 0),
        ([1.1, 1.0, 1.2, 0.9], 0),
    ],
)
def test_steps_outside_the_range_of_the_later_half_are_not_steady_yet(
    seconds: list[float], first: int
) -> None:
    assert onset(seconds, 0.01) == first


@given(st.lists(SECONDS, min_size=1, max_size=40), st.floats(min_value=0, max_value=0.5))
def test_at_least_half_of_the_steps_are_steady(seconds: list[float], relative_error: float) -> None:
    assert onset(seconds, relative_error) <= len(seconds) // 2
    assert onset(seconds, 0.0) == 0


def test_unequal_steps_do_not_settle() -> None:
    assert not is_settled([0.1, 0.2, 0.1, 0.2], 0.01)


@given(st.lists(st.floats(min_value=0.1, max_value=0.2), min_size=1, max_size=40, unique=True))
def test_an_error_of_zero_never_settles_unequal_steps(seconds: list[float]) -> None:
    assert not is_settled(seconds, 0.0)


UNEASY = [0.71, 0.74, 0.793, 0.715]
"""Steps of one trial of the measured grid: ten such tell their mean to ±3.5 %."""


@pytest.mark.parametrize(
    ("seconds", "relative_error", "is_given_up"),
    [
        (UNEASY, 0.02, True),
        (UNEASY, 0.04, False),
        (UNEASY[: FEWEST_TO_GIVE_UP - 1], 0.01, False),
        ([one / 3 for one in UNEASY], 0.01, False),
        ([9.0, *[1.0] * FEWEST_TO_GIVE_UP], 0.01, False),
    ],
)
def test_long_steps_that_spread_too_much_are_given_up(
    seconds: list[float], relative_error: float, is_given_up: bool
) -> None:
    assert is_out_of_reach(seconds, relative_error, 10) is is_given_up


@given(
    st.lists(st.floats(min_value=0.6, max_value=0.7), max_size=20),
    st.floats(min_value=0, max_value=0.5),
)
def test_what_is_settled_is_never_given_up(seconds: list[float], relative_error: float) -> None:
    assert not (
        is_settled(seconds, relative_error) and is_out_of_reach(seconds, relative_error, 20)
    )


@pytest.mark.parametrize(
    ("seconds", "host_bound_share", "is_enough"),
    [
        (UNEASY + UNEASY, 1.0, True),
        (UNEASY + UNEASY, HOST_BOUND, False),
        (UNEASY, 1.0, False),
        ([9.0, *UNEASY], 1.0, False),
    ],
)
def test_the_hosts_speed_is_not_polished(
    seconds: list[float], host_bound_share: float, is_enough: bool
) -> None:
    assert is_the_hosts(seconds, 0.01, host_bound_share) is is_enough


@pytest.mark.parametrize(("spread", "given_up"), [(0.005, 0), (0.05, 200)])
def test_only_a_spread_that_is_too_large_is_taken_for_one(spread: float, given_up: int) -> None:
    draw = random.Random(0)
    trials = [[draw.gauss(1.0, spread) for _ in range(8)] for _ in range(200)]
    assert sum(is_out_of_reach(trial, 0.01, 10) for trial in trials) == pytest.approx(
        given_up, abs=4
    )


def test_a_clean_row_has_no_doubts() -> None:
    assert doubts(**NO_DOUBT) == []


@pytest.mark.parametrize(
    ("figure", "word"),
    [
        ({"half_width": 0.05}, "unstable: the mean step is known to ±5.0% only"),
        ({"half_width": math.inf}, "unstable"),
        ({"host_bound_share": 0.9}, "host-bound"),
        ({"host_bound_share": 0.9, "launch_bound_share": 0.3}, "host-bound"),
        (
            {"launch_bound_share": 0.314},
            "partly host-bound: forward passes and updates that the GPU was done with",
        ),
        ({"allocator_retries": 7}, "thrashing: the allocator had to flush its cache 7 times"),
    ],
)
def test_a_doubt_is_put_in_words(figure: dict[str, float], word: str) -> None:
    (doubt,) = doubts(**{**NO_DOUBT, **figure})
    assert doubt.startswith(word)


def test_a_fixed_number_of_steps_is_not_called_unstable() -> None:
    assert doubts(**{**NO_DOUBT, "relative_error": 0.0, "half_width": 0.5}) == []


def test_without_a_gpu_nobody_is_host_bound() -> None:
    assert doubts(**{**NO_DOUBT, "host_bound_share": None}) == []
