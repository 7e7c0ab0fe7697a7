"""Scales of misfit and noise: the densities, and what they choose."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from orchestrator.search.model.arrays import Array
from orchestrator.search.model.error_scales import (
    Residuals,
    log_likelihoods,
    most_likely_scales,
)
from orchestrator.search.model.hyperparameters import OF_TIME

SETTINGS = replace(
    OF_TIME,
    misfit_deviations=(0.002, 0.008, 0.03),
    usual_misfit=0.008,
    noises=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1),
    outlier_threshold=math.inf,
)
COUNT = 40
GENERATOR = np.random.default_rng(0)


def residuals(values: Array) -> Residuals:
    """Of measurements that no kernel connects."""
    nothing = np.zeros((COUNT, COUNT))
    return Residuals(
        from_prior=values,
        from_law=values,
        parameter_covariance=nothing,
        misfit_kernel=nothing,
        known_variances=np.zeros(COUNT),
        is_on_floor=np.zeros(COUNT, bool),
    )


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
    values = GENERATOR.normal(scale=noise, size=COUNT)
    _, noises = most_likely_scales(residuals(values), SETTINGS)
    assert noises == pytest.approx(noise)


def test_scales_take_a_common_deviation_for_misfit():
    values = np.full(COUNT, 0.03) + GENERATOR.normal(scale=0.001, size=COUNT)
    together = replace(residuals(values), misfit_kernel=np.ones((COUNT, COUNT)))
    misfit, noises = most_likely_scales(together, SETTINGS)
    assert misfit == 0.03
    assert noises == pytest.approx(0.001)


def test_scales_give_an_outlier_noise_of_its_own():
    values = GENERATOR.normal(scale=0.0025, size=COUNT)
    values[7] = 0.2
    _, noises = most_likely_scales(residuals(values), replace(SETTINGS, outlier_threshold=3.0))
    others = np.delete(noises, 7)
    assert noises[7] == pytest.approx(0.2 / 3)
    assert others.max() <= 0.005


def test_scales_give_the_floor_noise_of_its_own():
    is_on_floor = np.arange(COUNT) % 2 == 0
    values = GENERATOR.normal(scale=np.where(is_on_floor, 0.1, 0.0025))
    _, noises = most_likely_scales(replace(residuals(values), is_on_floor=is_on_floor), SETTINGS)
    assert noises[is_on_floor] == pytest.approx(0.1)
    assert noises[~is_on_floor] == pytest.approx(0.0025)


def test_scales_without_evidence_are_the_usual_misfit():
    misfit, _ = most_likely_scales(residuals(np.zeros(COUNT)), SETTINGS)
    assert misfit == SETTINGS.usual_misfit
