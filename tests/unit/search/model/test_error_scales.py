"""How wrong a cost model is: scales of discrepancy and noise, outliers, and the posterior's
scale."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from orchestrator.search.model.arrays import Array
from orchestrator.search.model.error_scales import (
    Residuals,
    errors_of,
    left_out,
    log_likelihoods,
    most_likely_scales,
    outliers_of,
    posterior_scale,
)
from orchestrator.search.model.hyperparameters import OF_TIME

SETTINGS = replace(OF_TIME, noises=(0.01, 0.02))
SMALL = 0.05 * np.array([1.0, -1.0, 0.5, -0.5] * 3)
COUNT = len(SMALL)
GRID = replace(
    OF_TIME,
    discrepancy_deviations=(0.002, 0.008, 0.03),
    usual_discrepancy=0.008,
    noises=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1),
    excess_threshold=math.inf,
)
MANY = 40
GENERATOR = np.random.default_rng(0)


def residuals(from_prior: Array, *, is_of_host: bool = False) -> Residuals:
    """Residuals with a prior deviation of 0.1 each, independent of each other."""
    identity = np.eye(len(from_prior))
    return Residuals(
        from_prior=from_prior,
        from_model=np.zeros(len(from_prior)),
        parameter_covariance=0.1**2 * identity,
        discrepancy_kernel=identity,
        known_variances=np.zeros(len(from_prior)),
        is_on_floor=np.full(len(from_prior), is_of_host),
    )


def unconnected(values: Array) -> Residuals:
    """Residuals of measurements that no kernel connects."""
    nothing = np.zeros((len(values), len(values)))
    return replace(
        residuals(values),
        from_model=values,
        parameter_covariance=nothing,
        discrepancy_kernel=nothing,
    )


def with_outlier() -> Array:
    outlierd = SMALL.copy()
    outlierd[7] = 1.4
    return outlierd


def test_only_a_measurement_far_from_what_is_expected_is_a_outlier():
    assert outliers_of(residuals(SMALL), SETTINGS) == {}
    outliers = outliers_of(residuals(with_outlier()), SETTINGS)
    # Its distance of 1.4 is its further effect; the usual errors are 0.1, 0.03 and 0.01.
    assert outliers == {7: pytest.approx(1.4, rel=0.01)}


def test_times_of_the_host_are_never_outliers():
    assert outliers_of(residuals(with_outlier(), is_of_host=True), SETTINGS) == {}


def test_a_quarter_of_the_measurements_are_outliers_at_most():
    mixed = np.where(np.arange(COUNT) % 2, 2.0, SMALL)
    assert len(outliers_of(residuals(mixed), SETTINGS)) == 3


def test_errors_do_not_grow_by_a_outlier():
    before = errors_of(residuals(SMALL), SETTINGS)
    after = errors_of(residuals(with_outlier()), SETTINGS)
    assert after.discrepancy == before.discrepancy
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


def test_errors_give_a_outlier_that_the_law_does_not_explain_more_noise():
    outlierd = residuals(with_outlier())
    assert errors_of(outlierd, SETTINGS).noises[7] == pytest.approx(0.01)
    unexplained = replace(outlierd, from_model=np.where(np.arange(COUNT) == 7, 0.15, 0.0))
    assert errors_of(unexplained, SETTINGS).noises[7] == pytest.approx(0.05)


def test_log_likelihoods_are_those_of_normal_densities():
    root = GENERATOR.normal(size=(5, 5))
    covariance = root @ root.T
    variances = GENERATOR.uniform(0.1, 2.0, size=(3, 5))
    values = GENERATOR.normal(size=5)
    expected = [
        multivariate_normal(cov=covariance + np.diag(own)).logpdf(values) for own in variances
    ]
    constant = 5 / 2 * math.log(2 * math.pi)
    assert log_likelihoods(covariance, variances, values) == pytest.approx(
        np.array(expected) + constant
    )


@pytest.mark.parametrize("noise", [0.0025, 0.02, 0.1])
def test_scales_recover_the_noise_of_the_residuals(noise):
    values = GENERATOR.normal(scale=noise, size=MANY)
    _, noises = most_likely_scales(unconnected(values), GRID)
    assert noises == pytest.approx(noise)


def test_scales_take_a_common_deviation_for_discrepancy():
    values = np.full(MANY, 0.03) + GENERATOR.normal(scale=0.001, size=MANY)
    together = replace(unconnected(values), discrepancy_kernel=np.ones((MANY, MANY)))
    discrepancy, noises = most_likely_scales(together, GRID)
    assert discrepancy == 0.03
    assert noises == pytest.approx(0.001)


def test_scales_give_an_outlier_noise_of_its_own():
    values = GENERATOR.normal(scale=0.0025, size=MANY)
    values[7] = 0.2
    _, noises = most_likely_scales(unconnected(values), replace(GRID, excess_threshold=3.0))
    others = np.delete(noises, 7)
    assert noises[7] == pytest.approx(0.2 / 3)
    assert others.max() <= 0.005


def test_scales_give_the_floor_noise_of_its_own():
    is_on_floor = np.arange(MANY) % 2 == 0
    values = GENERATOR.normal(scale=np.where(is_on_floor, 0.1, 0.0025))
    _, noises = most_likely_scales(replace(unconnected(values), is_on_floor=is_on_floor), GRID)
    assert noises[is_on_floor] == pytest.approx(0.1)
    assert noises[~is_on_floor] == pytest.approx(0.0025)


def test_scales_without_evidence_are_the_usual_discrepancy():
    discrepancy, _ = most_likely_scales(unconnected(np.zeros(MANY)), GRID)
    assert discrepancy == GRID.usual_discrepancy
