"""How wrong a cost model is: surprises are left out, and small residuals shrink its variances."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.search.model.arrays import Array
from orchestrator.search.model.error_scales import (
    Residuals,
    errors_of,
    left_out,
    posterior_scale,
    surprises_of,
)
from orchestrator.search.model.hyperparameters import OF_TIME

SETTINGS = replace(OF_TIME, noises=(0.01, 0.02))
COUNT = 12
SMALL = 0.05 * np.array([1.0, -1.0, 0.5, -0.5, 1.0, -1.0, 0.5, -0.5, 1.0, -1.0, 0.5, -0.5])


def residuals(from_prior: Array, *, is_of_host: bool = False) -> Residuals:
    """Residuals with a prior deviation of 0.1 each, independent of each other."""
    identity = np.eye(COUNT)
    return Residuals(
        from_prior=from_prior,
        from_law=np.zeros(COUNT),
        parameter_covariance=0.1**2 * identity,
        misfit_kernel=identity,
        known_variances=np.zeros(COUNT),
        is_on_floor=np.full(COUNT, is_of_host),
    )


def with_surprise() -> Array:
    surprised = SMALL.copy()
    surprised[7] = 1.4
    return surprised


def test_only_a_measurement_far_from_what_is_expected_is_a_surprise():
    assert surprises_of(residuals(SMALL), SETTINGS) == {}
    surprises = surprises_of(residuals(with_surprise()), SETTINGS)
    # Its distance of 1.4 is its further effect; the usual errors are 0.1, 0.03 and 0.01.
    assert surprises == {7: pytest.approx(1.4, rel=0.01)}


def test_times_of_the_host_are_never_surprises():
    assert surprises_of(residuals(with_surprise(), is_of_host=True), SETTINGS) == {}


def test_a_quarter_of_the_measurements_are_surprises_at_most():
    mixed = np.where(np.arange(COUNT) % 2, 2.0, SMALL)
    assert len(surprises_of(residuals(mixed), SETTINGS)) == 3


def test_errors_do_not_grow_by_a_surprise():
    before = errors_of(residuals(SMALL), SETTINGS)
    after = errors_of(residuals(with_surprise()), SETTINGS)
    assert after.misfit == before.misfit
    assert after.noises.shape == (COUNT,)
    assert after.posterior_scale == pytest.approx(before.posterior_scale, rel=0.1)


def test_left_out_residual_is_predicted_from_the_others():
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    distances, variances = left_out(covariance, np.array([1.0, 2.0]))
    # The first is expected at 0.8 · 2, with variance 1 - 0.8².
    assert distances[0] == pytest.approx(-0.6)
    assert variances[0] == pytest.approx(0.36)


def test_posterior_scale_follows_the_size_of_the_residuals():
    none = np.zeros(COUNT)
    usual = 0.1 * np.sqrt(10 / 12) * np.ones(COUNT)
    # Twelve residuals, less two free parameters, of squared length 10 are as expected.
    assert posterior_scale(residuals(usual), 0.0, none) == pytest.approx(1.0)
    assert posterior_scale(residuals(none), 0.0, none) == pytest.approx(0.5)
    assert posterior_scale(residuals(2 * usual), 0.0, none) == pytest.approx(2.5)


def test_errors_give_a_surprise_that_the_law_does_not_explain_more_noise():
    surprised = residuals(with_surprise())
    assert errors_of(surprised, SETTINGS).noises[7] == pytest.approx(0.01)
    unexplained = replace(surprised, from_law=np.where(np.arange(COUNT) == 7, 0.15, 0.0))
    assert errors_of(unexplained, SETTINGS).noises[7] == pytest.approx(0.05)
