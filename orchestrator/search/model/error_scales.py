"""How wrong a cost model is, by how far its measurements are from what it expected of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.noise_scales import Residuals, most_likely_scales, outlier_noises

_SURPRISE = 5.0
"""A measurement this many standard deviations from what all others say shows an unusual technique.
It says nothing about the usual errors, nor about other techniques. Times of the host are never
surprises: on every model they are far from what the times of the GPU suggest."""
_MOST_SURPRISES = 0.25
"""At most this share of the measurements counts as surprises."""
_PRIOR_MEASUREMENTS = 10.0
"""The prior of the posterior's scale weighs as much as so many measurements. By replay: with 6, the
bounds of the simulated decoder hold too rarely; with many, searches take longer."""
_FREE_PARAMETERS = 2
"""Base and slope are nearly free before a measurement, so two of the first residuals are always
small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorScales:
    """How far costs are from the law, and measurements from costs; all are of logarithms."""

    misfit: float
    """Standard deviation of costs from the law."""
    noises: Array
    """Standard deviations of the measurements beyond what they state, shape (measured,)."""
    posterior_scale: float
    """Factor on all posterior variances."""
    surprises: Mapping[int, float]
    """Position of a surprising measurement -> standard deviation of its technique's further effect.
    """


def errors_of(residuals: Residuals, hyperparameters: Hyperparameters) -> ErrorScales:
    """The most likely errors. Surprising measurements do not count."""
    surprises = surprises_of(residuals, hyperparameters)
    usual = _without(surprises, residuals)
    of_usual = residuals.of(usual)
    misfit, noises = most_likely_scales(of_usual, hyperparameters)
    return ErrorScales(
        misfit=misfit,
        noises=_all_noises(residuals, usual, noises, hyperparameters),
        posterior_scale=posterior_scale(of_usual, misfit, noises),
        surprises=surprises,
    )


def _all_noises(
    residuals: Residuals, usual: Indices, noises: Array, hyperparameters: Hyperparameters
) -> Array:
    """The noise of every measurement, from the ``noises`` of the usual ones, shape (measured,)."""
    of_gpu = noises[~residuals.is_on_floor[usual]]
    noise = float(np.median(of_gpu)) if len(of_gpu) else hyperparameters.usual_noise
    # A surprising technique is no outlier: its effect explains it.
    every = np.maximum(noise, outlier_noises(residuals, hyperparameters))
    every[usual] = noises
    return np.asarray(every)


def surprises_of(residuals: Residuals, hyperparameters: Hyperparameters) -> dict[int, float]:
    """The surprising measurements: position -> deviation that would explain its distance.

    They are judged by the usual misfit and noise, because a surprise would raise the fitted ones.
    """
    of_floor = hyperparameters.floor_noises[-1]
    noises = np.where(residuals.is_on_floor, of_floor, hyperparameters.usual_noise)
    surprises: dict[int, float] = {}
    # The largest surprise is left out first, because it makes its neighbours look surprising, too.
    for _ in range(int(_MOST_SURPRISES * len(residuals.from_prior))):
        rows = _without(surprises, residuals)
        part = residuals.of(rows)
        covariance = _covariance(part, hyperparameters.usual_misfit, noises[rows])
        distances, variances = left_out(covariance, part.from_prior)
        scores = np.abs(distances) / np.sqrt(variances)
        scores[part.is_on_floor] = 0.0
        largest = int(np.argmax(scores))
        if scores[largest] <= _SURPRISE:
            break
        unexplained = distances[largest] ** 2 - variances[largest]
        surprises[int(rows[largest])] = math.sqrt(unexplained)
    return surprises


def _without(surprises: Mapping[int, float], residuals: Residuals) -> Indices:
    """The positions of the usual measurements, ascending."""
    return np.delete(np.arange(len(residuals.from_prior)), list(surprises))


def left_out(covariance: Array, residuals: Array) -> tuple[Array, Array]:
    """The distance of each residual from what all others predict, and its variance.

    Both have the shape (residuals,). Leave-one-out prediction (Rasmussen and Williams, 2006,
    equation 5.12): with the inverse covariance P, the distance is (P r)_i / P_ii, and its variance
    is 1 / P_ii.
    """
    precision = np.linalg.inv(covariance)
    variances = 1 / np.diag(precision)
    return precision @ residuals * variances, variances


def posterior_scale(residuals: Residuals, misfit: float, noises: Array) -> float:
    """Factor on all posterior variances: that of a Student-t process.

    Shah, Wilson and Ghahramani (2014): with n residuals of squared Mahalanobis length b, and a
    prior of the scale that weighs like v measurements, the variance is (v + b) / (v + n) times that
    of the Gaussian process.
    """
    covariance = _covariance(residuals, misfit, noises)
    length = float(residuals.from_prior @ np.linalg.solve(covariance, residuals.from_prior))
    count = max(0, len(residuals.from_prior) - _FREE_PARAMETERS)
    return (_PRIOR_MEASUREMENTS + length) / (_PRIOR_MEASUREMENTS + count)


def _covariance(residuals: Residuals, misfit: float, noises: Array) -> Array:
    """Covariance of the measured costs before their measurement, noise included."""
    noise = np.diag(residuals.known_variances + noises**2)
    return residuals.covariance_without_noise(misfit) + noise
