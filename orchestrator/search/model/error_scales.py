"""How wrong a cost model is, by how far its measurements are from what it expected of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, Mask
from orchestrator.search.model.hyperparameters import Hyperparameters

_DISCREPANCY_LOG_DEVIATION = 0.7
"""Standard deviation of the logarithm of a discrepancy around the usual one: a factor of two."""
_OUTLIER = 5.0
"""A measurement this many standard deviations from what all others say shows an unusual technique,
and nothing about usual errors. Times of the host are never outliers: on every model they are far
from what the times of the GPU suggest."""
_MOST_OUTLIERS = 0.25
"""At most this share of the measurements counts as outliers."""
_PRIOR_MEASUREMENTS = 10.0
"""The prior of the posterior's scale weighs as much as so many measurements. By replay: with 6, the
bounds of the simulated decoder hold too rarely; with many, searches take longer."""
_FREE_PARAMETERS = 2
"""Base and slope are nearly free, so two of the first residuals are always small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """What the linearized model does not explain of the measured costs; covariances are square."""

    from_prior: Array
    """Measured costs minus the costs at the prior mean of the parameters."""
    from_model: Array
    """Measured costs minus the costs at the current parameters."""
    parameter_covariance: Array
    """Covariance of the costs that follows from the prior of the parameters."""
    discrepancy_kernel: Array
    """Correlation of the discrepancies, which are the differences between costs and the model."""
    known_variances: Array
    """Variances of the costs that the trials themselves report."""
    is_on_floor: Mask
    """Whether the cost is a time that was measured on its floor."""

    def of(self, rows: Indices) -> Residuals:
        """Those of some of the measurements."""
        figures = ((own.name, getattr(self, own.name)) for own in fields(self))
        return Residuals(**{name: own[np.ix_(*[rows] * own.ndim)] for name, own in figures})

    def covariance(self, discrepancy: float, noises: Array | float = 0.0) -> Array:
        """Covariance of the measured costs before their measurement, for such deviations."""
        # Independent sources of error: their covariances add up.
        noise = np.diag(self.known_variances + noises**2)
        return np.asarray(
            self.parameter_covariance + discrepancy**2 * self.discrepancy_kernel + noise
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorScales:
    """How far costs are from the model, and measurements from costs; all are of logarithms."""

    discrepancy: float
    """Standard deviation of costs from the performance model."""
    noises: Array
    """Standard deviations of the measurements beyond what they state, shape (measured,)."""
    posterior_scale: float
    """Factor on all posterior variances."""
    outliers: Mapping[int, float]
    """Position of an outlying measurement -> standard deviation of its technique's further effect.
    """


def errors_of(residuals: Residuals, hyperparameters: Hyperparameters) -> ErrorScales:
    """The most likely errors. Outliers do not count."""
    outliers = outliers_of(residuals, hyperparameters)
    usual = _without(outliers, residuals)
    of_usual = residuals.of(usual)
    discrepancy, noises = most_likely_scales(of_usual, hyperparameters)
    return ErrorScales(
        discrepancy=discrepancy,
        noises=_all_noises(residuals, usual, noises, hyperparameters),
        posterior_scale=posterior_scale(of_usual, discrepancy, noises),
        outliers=outliers,
    )


def _all_noises(
    residuals: Residuals, usual: Indices, noises: Array, hyperparameters: Hyperparameters
) -> Array:
    """The noise of every measurement, from the ``noises`` of the usual ones, shape (measured,)."""
    of_gpu = noises[~residuals.is_on_floor[usual]]
    noise = float(np.median(of_gpu)) if len(of_gpu) else hyperparameters.usual_noise
    # An outlier has no more noise: the effect of its technique explains it.
    every = np.maximum(noise, excess_noises(residuals, hyperparameters))
    every[usual] = noises
    return np.asarray(every)


def outliers_of(residuals: Residuals, hyperparameters: Hyperparameters) -> dict[int, float]:
    """The outlying measurements: position -> deviation that would explain its distance."""
    # Judged by the usual discrepancy and noise, because an outlier would raise the fitted ones.
    of_floor = hyperparameters.floor_noises[-1]
    noises = np.where(residuals.is_on_floor, of_floor, hyperparameters.usual_noise)
    outliers: dict[int, float] = {}
    # The largest outlier is left out first, because it makes its neighbours look outlying, too.
    for _ in range(int(_MOST_OUTLIERS * len(residuals.from_prior))):
        rows = _without(outliers, residuals)
        part = residuals.of(rows)
        covariance = part.covariance(hyperparameters.usual_discrepancy, noises[rows])
        distances, variances = left_out(covariance, part.from_prior)
        scores = np.abs(distances) / np.sqrt(variances)
        scores[part.is_on_floor] = 0.0
        largest = int(np.argmax(scores))
        if scores[largest] <= _OUTLIER:
            break
        unexplained = distances[largest] ** 2 - variances[largest]
        outliers[int(rows[largest])] = math.sqrt(unexplained)
    return outliers


def _without(outliers: Mapping[int, float], residuals: Residuals) -> Indices:
    """The positions of the usual measurements, ascending."""
    return np.delete(np.arange(len(residuals.from_prior)), list(outliers))


def left_out(covariance: Array, residuals: Array) -> tuple[Array, Array]:
    """The distance of each residual from what all others predict, and its variance, shapes
    (residuals,): with the inverse covariance P they are (P r)_i / P_ii and 1 / P_ii (Rasmussen and
    Williams, 2006, equation 5.12)."""
    precision = np.linalg.inv(covariance)
    variances = 1 / np.diag(precision)
    return precision @ residuals * variances, variances


def posterior_scale(residuals: Residuals, discrepancy: float, noises: Array) -> float:
    """Factor on all posterior variances: that of a Student-t process. Shah, Wilson and Ghahramani
    (2014): with n residuals of squared Mahalanobis length b, and a prior of the scale that weighs
    like v measurements, the variance is (v + b) / (v + n) times that of the Gaussian process."""
    covariance = residuals.covariance(discrepancy, noises)
    length = float(residuals.from_prior @ np.linalg.solve(covariance, residuals.from_prior))
    count = max(0, len(residuals.from_prior) - _FREE_PARAMETERS)
    return (_PRIOR_MEASUREMENTS + length) / (_PRIOR_MEASUREMENTS + count)


def most_likely_scales(
    residuals: Residuals, hyperparameters: Hyperparameters
) -> tuple[float, Array]:
    """The most likely standard deviations of the discrepancies, and of each measurement's noise.
    Type II maximum likelihood over a small grid of scales, with the model linearized at its current
    parameters (Rasmussen and Williams, Gaussian Processes for Machine Learning, section 5.4.1)."""
    noises = _noise_choices(residuals, hyperparameters)
    likelihoods = []
    for discrepancy in hyperparameters.discrepancy_deviations:
        # Noise is independent from trial to trial, so it is on the diagonal only.
        covariance = residuals.covariance(discrepancy)
        likelihood = log_likelihoods(covariance, noises**2, residuals.from_prior)
        # The prior of a discrepancy is log-normal around the usual one.
        ratio = math.log(discrepancy / hyperparameters.usual_discrepancy)
        likelihoods.append(likelihood - (ratio / _DISCREPANCY_LOG_DEVIATION) ** 2 / 2)
    # Shape (discrepancies, choices of noise). Take the indices of the largest.
    by_scales = np.array(likelihoods)
    best_discrepancy, best_noise = np.unravel_index(np.argmax(by_scales), by_scales.shape)
    return hyperparameters.discrepancy_deviations[best_discrepancy], noises[best_noise]


def _noise_choices(residuals: Residuals, hyperparameters: Hyperparameters) -> Array:
    """Pairs of a noise for costs on the floor and one for all others, shape (choices, measured)."""
    floor_noises = hyperparameters.floor_noises
    if not residuals.is_on_floor.any():
        floor_noises = floor_noises[:1]
    pairs = list(itertools.product(hyperparameters.noises, floor_noises))
    noises, of_floor = np.array(pairs).T[:, :, None]
    off_floor = np.maximum(noises, excess_noises(residuals, hyperparameters))
    return np.asarray(np.where(residuals.is_on_floor, of_floor, off_floor))


def excess_noises(residuals: Residuals, hyperparameters: Hyperparameters) -> Array:
    """The least noise that puts each measurement within ``excess_threshold`` deviations."""
    distance = np.abs(residuals.from_model).clip(max=hyperparameters.floor_noises[-1])
    return np.asarray(distance / hyperparameters.excess_threshold)


def log_likelihoods(covariance: Array, variances: Array, residuals: Array) -> Array:
    """Logarithms of the normal densities of the residuals, up to a constant, shape (choices,):
    choice ``k`` has the covariance ``covariance + diag(variances[k])``."""
    covariances = covariance + variances[:, :, None] * np.eye(len(residuals))
    solved = np.linalg.solve(covariances, residuals[:, None])[:, :, 0]
    return np.asarray(-0.5 * (solved @ residuals + np.linalg.slogdet(covariances).logabsdet))
