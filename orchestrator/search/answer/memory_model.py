"""Memory of every candidate: predicted and corrected by measurements, or else a learnt curve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from orchestrator.search.answer.cost_model import CostModel, Observation
from orchestrator.search.answer.cost_prior import CostPrior
from orchestrator.search.answer.predicted_memory import PredictedMemory
from orchestrator.search.answer.technique_priors import TechniquePriors
from orchestrator.search.frontier.arrays import Array, Indices, rounded
from orchestrator.search.frontier.candidates import Candidate
from orchestrator.search.frontier.memory_correction import CorrectionHyperparameters

_BORROWED_CURVE_DEVIATION = 0.12
"""Deviation of the part of a borrowed prediction's error that only the same curve shares, as a
logarithm."""
_LEAST_CURVE_DEVIATION = 0.03
"""The same where nearly all memory is that of weights and optimizer states."""
_OUT_OF_MEMORY_MARGIN = 1.05
"""A candidate that ran out of memory counts as needing at least this many times the device's."""


class MemoryModel:
    """The logarithm of every candidate's bytes as a normal distribution.

    ``predicted_bytes`` maps trial ids to predicted bytes. It may grow during the search. It needs
    only a few micro-batches of each curve, because memory is nearly affine in the micro-batch.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        prior: CostPrior,
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._read_count = 0
        """Number of predictions when they were last read."""
        self._is_predicted = False
        self._predicted = PredictedMemory(candidates, predicted_bytes, priors)
        self._curves = CostModel(prior)
        self._prior = prior
        self._hyperparameters = CorrectionHyperparameters()
        self._log_bytes: dict[int, float] = {}
        self._lower_bounds: dict[int, float] = {}
        """Candidate that ran out of memory -> lower bound of the logarithm of its bytes."""
        self.mean: Array | None = None
        """Expected logarithm of each candidate's bytes, shape (candidates,); None at first."""
        self.deviation: Array = np.zeros(0)
        """Standard deviations of these logarithms, shape (candidates,)."""

    def observe(self, index: int, memory_bytes: float) -> None:
        """Note the measured memory of a candidate. ``learn`` takes it into account."""
        self._lower_bounds.pop(index, None)
        self._log_bytes[index] = math.log(memory_bytes)
        self._curves.observe(index, Observation(cost=memory_bytes))

    def ran_out(self, index: int, device_bytes: float) -> None:
        """Note that a candidate needs more than its device has."""
        if index not in self._log_bytes:
            self._lower_bounds[index] = math.log(device_bytes * _OUT_OF_MEMORY_MARGIN)

    def learn(self) -> None:
        """Compute the posterior from all predictions and measurements so far."""
        if self._read_count != len(self._predicted_bytes):
            self._read_count = len(self._predicted_bytes)
            self._is_predicted = self._predicted.read()
        if self._is_predicted:
            self._correct()
        elif self._log_bytes:
            self._curves.learn()
            self.mean = self._curves.mean
            self.deviation = np.sqrt(self._curves.variance)
        if self.mean is not None:
            self._apply_measurements()

    def _apply_measurements(self) -> None:
        """Measured memory is exact; a candidate that ran out of memory has its lower bound."""
        assert self.mean is not None
        for index, log_bytes in self._log_bytes.items():
            self.mean[index] = log_bytes
            self.deviation[index] = 0.0
        for index, log_bytes in self._lower_bounds.items():
            self.mean[index] = max(self.mean[index], log_bytes)
            self.deviation[index] = 0.0

    def _correct(self) -> None:
        """Correct the predictions by a Gaussian process over log(measured / predicted).

        The same model as in ``frontier.memory_correction``.
        """
        log_predicted = self._predicted.log_bytes
        measured, errors = self._errors(log_predicted)
        every = np.arange(len(log_predicted))
        if not len(measured):
            # Without measurements the posterior is the prior: the predictions as they are.
            prior = self._variances(self._hyperparameters.usual_deviation)
            self.mean = log_predicted.copy()
            self.deviation = np.sqrt(prior)
            return
        deviation = self._most_probable_deviation(measured, errors)
        prior = self._covariance(every, measured, deviation)
        noise = self._hyperparameters.noise**2 * np.eye(len(measured))
        # Gaussian process regression (Rasmussen and Williams, 2006, equations 2.23 and 2.24).
        gain = np.linalg.solve(prior[measured] + noise, prior.T)
        explained = np.einsum("ij,ji->i", prior, gain)
        self.mean = rounded(log_predicted + gain.T @ errors)
        variances = self._variances(deviation) - explained
        # A variance can fall below zero by rounding.
        self.deviation = rounded(np.sqrt(np.maximum(variances, 0.0)))

    def _errors(self, log_predicted: Array) -> tuple[Indices, Array]:
        """The candidates with a measurement, and the logarithm of measured / predicted of each."""
        known = dict(self._log_bytes)
        for index, lower_bound in self._lower_bounds.items():
            # A lower bound corrects a prediction only if the prediction is below it.
            if log_predicted[index] < lower_bound:
                known[index] = lower_bound
        measured = np.array(list(known), int)
        return measured, np.array(list(known.values())) - log_predicted[measured]

    def _covariance(self, rows: Indices, columns: Indices, deviation: float) -> Array:
        """Prior covariance of the errors of predictions, shape (rows, columns).

        ``deviation`` is that of a single prediction. Half of its variance is shared by candidates
        with equal predictions, and half by candidates with similar techniques and sizes.
        """
        log_predicted = self._predicted.log_bytes
        is_equal = log_predicted[rows][:, None] == log_predicted[columns]
        kernel = self._prior.misfit_kernel(rows, columns)
        covariance = self._hyperparameters.common_deviation**2
        covariance = covariance + deviation**2 * (is_equal + kernel) / 2
        # Curves that differ in the same way from their lender share the error of this difference.
        covariance = covariance + self._predicted.borrowed_covariance(rows, columns)
        curves = self._predicted.curves
        borrows = self._predicted.borrows[rows][:, None]
        is_same_curve = (curves[rows][:, None] == curves[columns]) & borrows
        own = self._own_deviations()
        return np.asarray(covariance + np.outer(own[rows], own[columns]) * is_same_curve * kernel)

    def _variances(self, deviation: float) -> Array:
        """The diagonal of ``_covariance`` for all candidates."""
        exact = self._hyperparameters.common_deviation**2 + deviation**2
        borrowed = self._predicted.borrowed_variances()
        own = self._own_deviations() ** 2 * self._predicted.borrows
        return np.asarray(exact + borrowed + own)

    def _own_deviations(self) -> Array:
        """Deviation of the part of an error that only the same curve shares, (candidates,).

        The part that grows with the micro-batch is uncertain, and the rest is nearly certain.
        """
        weights = np.minimum(self._predicted.sample_weights, 1.0)
        return np.maximum(_LEAST_CURVE_DEVIATION, _BORROWED_CURVE_DEVIATION * weights)

    def _most_probable_deviation(self, measured: Indices, errors: Array) -> float:
        """The deviation of a single prediction that the errors make most probable."""

        def log_density(deviation: float) -> float:
            """Logarithm of likelihood times prior, without constant terms.

            The likelihood is that of a multivariate normal distribution, through its Cholesky
            factor. The prior of the logarithm of the deviation is a standard normal distribution
            around the usual deviation.
            """
            covariance = self._covariance(measured, measured, deviation)
            covariance = covariance + self._hyperparameters.noise**2 * np.eye(len(errors))
            factor = np.linalg.cholesky(covariance)
            solved = np.linalg.solve(factor, errors)
            likelihood = float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())
            log_ratio = math.log(deviation / self._hyperparameters.usual_deviation)
            return likelihood - log_ratio**2 / 2

        return max(self._hyperparameters.deviations, key=log_density)
