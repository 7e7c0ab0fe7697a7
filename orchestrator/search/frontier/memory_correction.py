"""Corrects the predicted memory of candidates by the memory that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.search.frontier.cost_model import Posterior
from orchestrator.search.frontier.similarity import misfit_kernel
from orchestrator.search.model.arrays import Array, Indices, rounded
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.memory.memory_model import (
    CorrectionHyperparameters,
    most_probable_deviation,
)


class MemoryCorrection:
    """A Gaussian process over log(measured / predicted).

    Trials with equal predictions share half of the variance, because they make the same
    allocations. How much of the other half two candidates share depends on their similarity.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._hyperparameters = CorrectionHyperparameters()
        correlation_per_choice = Hyperparameters().correlation_per_choice
        self._kernel = misfit_kernel(candidates, correlation_per_choice)
        self._log_bytes: dict[int, float] = {}

    def observe(self, index: int, memory_bytes: float) -> None:
        """Learn the measured memory of a candidate. A new value replaces an earlier one."""
        self._log_bytes[index] = math.log(memory_bytes)

    def posterior(self, log_predicted: Array) -> Posterior:
        """The posterior of the logarithm of every candidate's memory.

        ``log_predicted`` holds the logarithms of the predictions; NaN stands for no prediction.
        """
        # Half of the correlation is for equal predictions, half is by similarity.
        kernel = (np.equal.outer(log_predicted, log_predicted) + self._kernel) / 2
        measured = self._measured(log_predicted)
        log_measured = np.array([self._log_bytes[index] for index in measured])
        # Predictions are off by factors, so errors are differences of logarithms.
        errors = log_measured - log_predicted[measured]
        among = np.ix_(measured, measured)
        common = self._hyperparameters.common_deviation**2

        def covariance(deviation: float) -> Array:
            return np.asarray(common + deviation**2 * kernel[among])

        deviation = most_probable_deviation(covariance, errors, self._hyperparameters)
        prior = common + deviation**2 * kernel
        return self._regression(prior, measured, errors, log_predicted)

    def _regression(
        self, prior: Array, measured: Indices, errors: Array, log_predicted: Array
    ) -> Posterior:
        """Gaussian process regression (Rasmussen and Williams, section 2.2) of the errors."""
        noise = self._hyperparameters.noise**2
        # The errors of all candidates, given the errors of the measured ones.
        covariance = prior[np.ix_(measured, measured)] + noise * np.eye(len(measured))
        gain = np.linalg.solve(covariance, prior[measured])
        mean = log_predicted + gain.T @ errors
        variance = np.diag(prior) - np.einsum("ij,ij->j", prior[measured], gain)
        # The variance can fall below zero by rounding.
        deviations = np.sqrt(np.maximum(variance, 0.0) + noise)
        return Posterior(mean=rounded(mean), deviation=rounded(deviations))

    def _measured(self, log_predicted: Array) -> Indices:
        """Indices of the candidates that have a prediction and a measurement."""
        is_predicted = ~np.isnan(log_predicted)
        return np.array([index for index in self._log_bytes if is_predicted[index]], int)
