"""Selects by likelihood how far costs are from the law, and how noisy measurements are.

The method is type II maximum likelihood over a small grid of scales, with the law linearized at its
current parameters. See Rasmussen and Williams, Gaussian Processes for Machine Learning, section
5.4.1.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, Mask
from orchestrator.search.model.hyperparameters import Hyperparameters

_MISFIT_LOG_DEVIATION = 0.7
"""Standard deviation of the logarithm of a misfit around the usual one: a factor of two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """What the linearized law does not explain of the measured costs.

    Arrays have one entry per measured candidate; covariances and kernels are square.
    """

    from_prior: Array
    """Measured costs minus the costs at the prior mean of the parameters."""
    from_law: Array
    """Measured costs minus the costs at the current parameters."""
    parameter_covariance: Array
    """Covariance of the costs that follows from the prior of the parameters."""
    misfit_kernel: Array
    """Correlation of the misfits, which are the differences between costs and the law."""
    known_variances: Array
    """Variances of the costs that the trials themselves report."""
    is_on_floor: Mask
    """Whether the cost is a time that was measured on its floor."""

    def of(self, rows: Indices) -> Residuals:
        """Those of some of the measurements."""
        square = np.ix_(rows, rows)
        return Residuals(
            from_prior=self.from_prior[rows],
            from_law=self.from_law[rows],
            parameter_covariance=self.parameter_covariance[square],
            misfit_kernel=self.misfit_kernel[square],
            known_variances=self.known_variances[rows],
            is_on_floor=self.is_on_floor[rows],
        )

    def covariance_without_noise(self, misfit: float) -> Array:
        """Covariance of the measured costs before their measurement, for a deviation of misfits."""
        # Independent sources of error: their covariances add up.
        return np.asarray(self.parameter_covariance + misfit**2 * self.misfit_kernel)


def most_likely_scales(
    residuals: Residuals, hyperparameters: Hyperparameters
) -> tuple[float, Array]:
    """The most likely standard deviations of the misfits, and of each measurement's noise."""
    noises = _noise_choices(residuals, hyperparameters)
    likelihoods = []
    for misfit in hyperparameters.misfit_deviations:
        covariance = residuals.covariance_without_noise(misfit)
        # Noise is independent from trial to trial, so it is on the diagonal only.
        variances = residuals.known_variances + noises**2
        likelihood = log_likelihoods(covariance, variances, residuals.from_prior)
        # The prior of a misfit is log-normal around the usual one.
        ratio = math.log(misfit / hyperparameters.usual_misfit)
        likelihoods.append(likelihood - (ratio / _MISFIT_LOG_DEVIATION) ** 2 / 2)
    # Shape (misfits, choices of noise). Take the indices of the largest.
    by_scales = np.array(likelihoods)
    best_misfit, best_noise = np.unravel_index(np.argmax(by_scales), by_scales.shape)
    return hyperparameters.misfit_deviations[best_misfit], noises[best_noise]


def _noise_choices(residuals: Residuals, hyperparameters: Hyperparameters) -> Array:
    """The noises to choose from, shape (choices, measured).

    Each choice combines a noise for costs on the floor with a noise for all other costs.
    """
    floor_noises = hyperparameters.floor_noises
    if not residuals.is_on_floor.any():
        floor_noises = floor_noises[:1]
    at_least = outlier_noises(residuals, hyperparameters)
    choices = []
    for noise, floor_noise in itertools.product(hyperparameters.noises, floor_noises):
        off_floor = np.maximum(noise, at_least)
        choices.append(np.where(residuals.is_on_floor, floor_noise, off_floor))
    return np.array(choices)


def outlier_noises(residuals: Residuals, hyperparameters: Hyperparameters) -> Array:
    """The least noise of each measurement, shape (measured,): 0 if there are no outliers.

    It puts an outlier within ``outlier_threshold`` deviations of the law.
    """
    distance = np.abs(residuals.from_law).clip(max=hyperparameters.floor_noises[-1])
    return np.asarray(distance / hyperparameters.outlier_threshold)


def log_likelihoods(covariance: Array, variances: Array, residuals: Array) -> Array:
    """Logarithms of the normal densities of the residuals, up to a constant, shape (choices,).

    Choice ``k`` has the covariance ``covariance + diag(variances[k])``; ``variances`` has shape
    (choices, residuals).

    The density needs the residuals solved with the Cholesky factor L of each covariance: -|L⁻¹r|²/2
    - Σ log L_ii. When the residuals are appended to the covariance as a last row, the last row of
    its factor is (L⁻¹r)ᵀ. So one batched factorization gives both terms.
    """
    count = len(residuals)
    bordered = np.zeros((len(variances), count + 1, count + 1))
    bordered[:, :count, :count] = covariance
    bordered[:, range(count), range(count)] += variances
    bordered[:, count, :count] = residuals  # Cholesky reads only the lower triangle
    # Any last element that keeps the matrix positive definite serves: it enters no result.
    bordered[:, count, count] = np.finfo(float).max
    factors = np.linalg.cholesky(bordered)
    squares = (factors[:, count, :count] ** 2).sum(axis=1)
    diagonals = np.diagonal(factors, axis1=1, axis2=2)[:, :count]
    return np.asarray(-0.5 * squares - np.log(diagonals).sum(axis=1))
