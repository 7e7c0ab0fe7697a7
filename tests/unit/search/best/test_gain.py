"""The gain that unmeasured candidates could bring while nothing measured fits a budget."""

import dataclasses

import numpy as np
import pytest

from orchestrator.search.best.gain import (
    Posterior,
    expected_gains,
    fastest_of,
    gains_by_forecast,
    most_per_second,
    probability_to_fit,
    remaining_gain,
)
from orchestrator.search.best.state import SearchState
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect
from orchestrator.units import GIB
from tests.benchmarks.grids import make_record, make_spec

SLOW = Effect(log_time=3.0, deviation=0.1, log_memory=1.0, memory_deviation=0.1, models=3)
PRIORS = TechniquePriors(effects={"offload": {"zero2_cpu_optimizer": SLOW}})
SIZES = (2, 4, 8)
BUDGET = 10 * GIB


def posterior() -> Posterior:
    """Three sizes of fast trials, the largest measured, and three of a technique that is slow."""
    listed = []
    for offload in ("none", "zero2_cpu_optimizer"):
        for size in SIZES:
            listed.append(make_spec({"offload": offload, "micro_batch": size, "accumulation": 1}))
    predicted = {spec.trial_id: (4.0 + 2 * spec.micro_batch) * GIB for spec in listed[:3]}
    state = SearchState(candidates_of(listed), predicted, PRIORS, {})
    state.note(2, make_record(listed[2], 20 * GIB, 100.0, device_bytes=80 * GIB))
    found = state.posterior()
    assert found is not None
    return found


def test_forecasts_equal_to_that_of_a_measured_candidate_tell_nothing():
    known = dataclasses.replace(posterior(), log_speed=np.full(6, 9.0), works=np.ones(6))
    forecast = np.array([1.0, 1.004, 0.9, 2.0, -np.inf, 3.0])

    def gains(incumbent: int | None, measured: list[int]) -> list[float]:
        found = gains_by_forecast(known, forecast, incumbent, measured, 0.01)
        return [round(float(own), 3) for own in found]

    assert gains(None, [0]) == [0.0, 0.0, 0.01, 1.11, 0.0, 2.11]
    # A measured candidate may have no forecast.
    assert gains(None, [4]) == [0.11, 0.114, 0.01, 1.11, 0.0, 2.11]
    # What is measured tells that none of these is faster.
    assert gains(0, [0]) == [0.0] * 6


def test_gains_by_forecast_are_those_over_the_incumbent():
    speeds = np.array([1.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    works = np.array([1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    known = dataclasses.replace(posterior(), log_speed=speeds, works=works)
    forecast = np.array([1.5, 2.5, 2.5, 1.2, -np.inf, 1.7])
    found = gains_by_forecast(known, forecast, 0, [0], 0.01)
    assert found.tolist() == pytest.approx([0.0, 1.0, 0.5, 0.0, 0.0, 0.2])
    forecast[0] = -np.inf
    found = gains_by_forecast(known, forecast, 0, [0], 0.01)
    assert found.tolist() == pytest.approx([0.0, 1.5, 0.75, 0.2, 0.0, 0.7])


def test_gains_without_an_incumbent_do_not_depend_on_slow_candidates_that_do_not_fit():
    is_open = np.array([True, True, False, True, True, True])
    without_slow = np.array([True, True, False, False, False, False])
    known = posterior()
    gains = expected_gains(known, None, probability_to_fit(known, BUDGET), is_open)
    assert gains[:2] == pytest.approx(
        expected_gains(known, None, probability_to_fit(known, BUDGET), without_slow)[:2]
    )
    # What surely does not fit gains nothing.
    assert gains[5] == pytest.approx(0.0, abs=1e-3)


def test_values_without_an_incumbent_are_the_expected_gains():
    is_open = np.array([True, True, False, True, True, True])
    known = posterior()
    gains = expected_gains(known, None, probability_to_fit(known, BUDGET), is_open)
    left = remaining_gain(known, None, BUDGET, gains, probability=0.95, seed=0)
    assert left.values.tolist() == gains.tolist()
    assert left.probability_any_fits > 0.9


class Times:
    """Step times of candidates, the first of which is the incumbent."""

    def __init__(self, shared: float, count: int = 3) -> None:
        self.joint = np.full((count, count), shared) + np.diag([0.04 - shared] * count)
        self.variance = np.diag(self.joint)

    def covariance(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        return self.joint[np.ix_(rows, columns)]


def known_posterior(shared: float, *, model_error: float = 0.0) -> Posterior:
    """Candidates 1 and 2 are expected to be 5 % and 2 % faster than the incumbent. All fit."""
    return Posterior(
        log_speed=np.array([3.0, 3.05, 3.02]),
        highest_log_speed=np.full(3, np.inf),
        log_memory=np.zeros(3),
        memory_deviation=np.zeros(3),
        works=np.ones(3),
        choices=np.zeros((3, 1), dtype=int),
        choice_works=np.ones(1),
        times=Times(shared),  # type: ignore[arg-type]
        model_errors=np.full(3, model_error),
    )


def positive_part(mean: float, deviation: float) -> float:
    """The mean of a normal variable's positive part, by summation."""
    values, step = np.linspace(mean - 9 * deviation, mean + 9 * deviation, 20_001, retstep=True)
    density = np.exp(-(((values - mean) / deviation) ** 2) / 2) / deviation / np.sqrt(2 * np.pi)
    return float((np.maximum(values, 0.0) * density).sum() * step)


OPEN = np.array([False, True, True])


@pytest.mark.parametrize("shared", [0.0, 0.03, 0.0399])
@pytest.mark.parametrize("model_error", [0.0, 0.1])
def test_expected_gain_is_that_of_the_ratio_to_the_incumbent(shared, model_error):
    gains = expected_gains(
        known_posterior(shared, model_error=model_error),
        0,
        probability_to_fit(known_posterior(shared, model_error=model_error), 1e12),
        OPEN,
    )
    # Var(a - b) = Var(a) + Var(b) - 2 Cov(a, b): an error that both share cancels out.
    deviation = np.sqrt(2 * 0.04 - 2 * shared + model_error**2)
    expected = [0.0, positive_part(0.05, deviation), positive_part(0.02, deviation)]
    assert gains.tolist() == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("shared", "model_error"), [(0.0, 0.0), (0.0399, 0.0), (0.0399, 0.1)])
def test_remaining_gain_is_bounded_by_the_quantile_of_the_larger_ratio(shared, model_error):
    known = known_posterior(shared, model_error=model_error)
    gains = expected_gains(known, 0, probability_to_fit(known, 1e12), OPEN)
    left = remaining_gain(known, 0, 1e12, gains, probability=0.95, seed=0)
    spread = 0.04 - shared  # of each candidate alone, and of the incumbent
    draws = np.random.default_rng(1).normal(size=(100_000, 4))
    wrong = model_error * draws[:, 3:]  # about the incumbent, so about both ratios
    errors = np.sqrt(spread) * (draws[:, 1:3] - draws[:, :1]) + wrong
    ratios = np.maximum(errors + np.array([0.05, 0.02]), 0.0).max(axis=1)
    assert left.at_most == pytest.approx(np.expm1(np.quantile(ratios, 0.95)), rel=0.15)
    assert left.expected == pytest.approx(np.expm1(ratios).mean(), rel=0.15)
    assert left.probability_any_fits == 1.0


def test_memory_errors_of_two_candidates_are_half_in_common():
    known = dataclasses.replace(known_posterior(0.0), memory_deviation=np.ones(3))
    gains = expected_gains(known, 0, probability_to_fit(known, 1.0), OPEN)
    assert gains[1] == pytest.approx(positive_part(0.05, np.sqrt(0.08)) / 2, rel=1e-3)
    left = remaining_gain(known, 0, 1.0, gains, probability=0.95, seed=0)
    # For two normal variables with correlation 1/2, P(either < 0) = 1/2 + 1/2 - 1/3.
    assert left.probability_any_fits == pytest.approx(2 / 3, abs=0.06)


def test_row_that_is_known_as_well_as_a_measurement_shows_half():
    noise = 0.02
    known = dataclasses.replace(known_posterior(0.04 - noise**2 / 2), works=np.array([1, 1, 0]))
    gains = expected_gains(known, 0, probability_to_fit(known, 1e12), OPEN)
    left = remaining_gain(known, 0, 1e12, gains, probability=0.95, seed=0)
    draws = np.random.default_rng(1).normal(0.05, noise, 100_000)
    excess = np.maximum(np.maximum(draws, 0.0) - gains[1], 0.0).mean()
    assert left.values.tolist() == pytest.approx([0.0, gains[1] + excess / 2, 0.0], rel=0.03)


def test_gains_without_an_incumbent_rank_by_speed_and_not_by_its_unit():
    known = known_posterior(0.0)
    gains = expected_gains(known, None, probability_to_fit(known, 1e12), OPEN)
    assert gains[1] > gains[2] > gains[0] == 0.0
    # The usual speed is the mean of the open candidates, from which a deficit of e is counted.
    assert gains[1] == pytest.approx(positive_part(1.015, 0.2), rel=1e-3)
    doubled = dataclasses.replace(known, log_speed=known.log_speed + np.log(2))
    assert expected_gains(doubled, None, probability_to_fit(doubled, 1e12), OPEN) == pytest.approx(
        gains
    )


def test_no_gain_exceeds_what_the_hosts_time_allows():
    known = dataclasses.replace(known_posterior(0.0), highest_log_speed=np.array([3, 3.01, 2.9]))
    gains = expected_gains(known, 0, probability_to_fit(known, 1e12), OPEN)
    assert gains.tolist() == pytest.approx([0.0, 0.01, 0.0])
    left = remaining_gain(known, 0, 1e12, gains, probability=0.95, seed=0)
    assert left.at_most == pytest.approx(np.expm1(0.01), rel=1e-3)
    assert 0.4 * 0.01 < left.expected < 0.7 * 0.01, "in every other sample there is a gain"


def test_only_the_most_promising_candidates_are_sampled():
    count = 300
    known = Posterior(
        log_speed=np.linspace(3.0, 3.3, count),
        highest_log_speed=np.full(count, np.inf),
        log_memory=np.zeros(count),
        memory_deviation=np.zeros(count),
        works=np.ones(count),
        choices=np.zeros((count, 1), dtype=int),
        choice_works=np.ones(1),
        times=Times(0.0, count),  # type: ignore[arg-type]
        model_errors=np.zeros(count),
    )
    gains = expected_gains(known, 0, np.ones(count), np.arange(count) > 0)
    left = remaining_gain(known, 0, 1e12, gains, probability=0.95, seed=0)
    assert np.flatnonzero(left.values).tolist() == list(range(count - 256, count))


def test_fastest_is_of_those_that_need_at_most_the_budget():
    known = dataclasses.replace(known_posterior(0.0), log_memory=np.array([0.0, 0.1, 0.0]))
    assert fastest_of(known, [0, 1, 2], 1.0) == 2
    assert fastest_of(known, [0, 1, 2], 1.2) == 1
    assert fastest_of(known, [0, 1, 2], 0.9) is None


@pytest.mark.parametrize(("incumbent", "at_most"), [(None, np.inf), (0, 0.0)])
def test_nothing_left_to_measure_gains_nothing(incumbent, at_most):
    left = remaining_gain(
        known_posterior(0.0), incumbent, 1e12, np.zeros(3), probability=0.95, seed=0
    )
    assert (left.expected, left.at_most, left.probability_any_fits) == (0.0, at_most, 0.0)


def test_technique_that_may_not_run_fits_as_often_as_it_runs():
    known = dataclasses.replace(known_posterior(0.0), choice_works=np.array([0.9]))
    gains = expected_gains(known, 0, probability_to_fit(known, 1e12), OPEN)
    left = remaining_gain(known, 0, 1e12, gains, probability=0.95, seed=0)
    # Both candidates have the technique, so it runs for both or for none.
    assert left.probability_any_fits == pytest.approx(0.9, abs=0.05)
    certain = remaining_gain(known_posterior(0.0), 0, 1e12, gains, probability=0.95, seed=0)
    assert left.expected == pytest.approx(0.9 * certain.expected, rel=0.1)


def test_next_is_the_most_valuable_per_second_of_those_worth_measuring():
    values, gains = np.array([9.0, 0.2, 0.3, 0.0]), np.array([1.0, 1.0, 1.0, 4.0])
    seconds = np.array([1.0, 1.0, 2.0, 1.0])
    assert most_per_second(values, gains, seconds, np.array([False, True, True, True])) == 1
    # None of the candidates with a value can be measured, so the expected gains decide.
    assert most_per_second(values, gains, seconds, np.array([False, False, False, True])) == 3
    assert most_per_second(values, gains, seconds, np.zeros(4, bool)) is None
