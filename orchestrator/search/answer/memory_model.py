"""Memory of every candidate: as predicted and corrected by measurements, else a learnt curve."""

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
"""Error of a prediction borrowed from other techniques that belongs to one curve alone."""
_OUT_OF_MEMORY_MARGIN = 1.05
"""What ran out of memory is taken to need at least this share of the device's memory."""


class MemoryModel:
    """The logarithm of every candidate's bytes as a normal distribution.

    ``predicted_bytes`` maps trials to predicted bytes. It may grow during the search, and need not
    have all sizes of a curve, because memory is affine in the micro-batch.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        prior: CostPrior,
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._seen = 0
        """How many trials were predicted when the predictions were last read."""
        self._is_predicted = False
        self._predicted = PredictedMemory(candidates, predicted_bytes, priors)
        self._curves = CostModel(prior)
        self._prior = prior
        self._hyperparameters = CorrectionHyperparameters()
        self._log_bytes: dict[int, float] = {}
        self._at_least: dict[int, float] = {}
        """Candidates that ran out of memory -> logarithm of the bytes that they need at least."""
        self.mean: Array | None = None
        """Expected logarithm of each candidate's bytes; None while nothing is known."""
        self.deviation: Array = np.zeros(0)

    def observe(self, index: int, memory_bytes: float) -> None:
        """Note the measured memory of a candidate. ``learn`` takes it into account."""
        self._at_least.pop(index, None)
        self._log_bytes[index] = math.log(memory_bytes)
        self._curves.observe(index, Observation(cost=memory_bytes))

    def ran_out(self, index: int, device_bytes: float) -> None:
        """Note that a candidate needs more than its device has."""
        if index not in self._log_bytes:
            self._at_least[index] = math.log(device_bytes * _OUT_OF_MEMORY_MARGIN)

    def learn(self) -> None:
        """Compute the posterior from everything known so far."""
        if self._seen != len(self._predicted_bytes):
            self._seen = len(self._predicted_bytes)
            self._is_predicted = self._predicted.read()
        if self._is_predicted:
            self._correct()
        elif self._log_bytes:
            self._curves.learn()
            self.mean = self._curves.mean
            self.deviation = np.sqrt(self._curves.variance)
        if self.mean is not None:
            self._apply_what_is_known()

    def _apply_what_is_known(self) -> None:
        """What was measured is certain; what ran out of memory needs at least the device's."""
        assert self.mean is not None
        for index, log_bytes in self._log_bytes.items():
            self.mean[index] = log_bytes
            self.deviation[index] = 0.0
        for index, log_bytes in self._at_least.items():
            self.mean[index] = max(self.mean[index], log_bytes)
            self.deviation[index] = 0.0

    def _correct(self) -> None:
        """A Gaussian process over log(measured / predicted), as ``frontier.memory_correction``."""
        log_predicted = self._predicted.log_bytes
        measured, errors = self._errors(log_predicted)
        every = np.arange(len(log_predicted))
        if not len(measured):
            prior = self._variances(self._hyperparameters.usual_deviation)
            self.mean = log_predicted.copy()
            self.deviation = np.sqrt(prior)
            return
        deviation = self._most_probable_deviation(measured, errors)
        prior = self._covariance(every, measured, deviation)
        noise = self._hyperparameters.noise**2 * np.eye(len(measured))
        gain = np.linalg.solve(prior[measured] + noise, prior.T)
        explained = np.einsum("ij,ji->i", prior, gain)
        self.mean = rounded(log_predicted + gain.T @ errors)
        variances = self._variances(deviation) - explained
        # A variance can fall below zero by rounding.
        self.deviation = rounded(np.sqrt(np.maximum(variances, 0.0)))

    def _errors(self, log_predicted: Array) -> tuple[Indices, Array]:
        """The candidates with a measurement, and the logarithms of measured / predicted."""
        known = dict(self._log_bytes)
        for index, at_least in self._at_least.items():
            # It is news only if the candidate was expected to fit.
            if log_predicted[index] < at_least:
                known[index] = at_least
        measured = np.array(list(known), int)
        return measured, np.array(list(known.values())) - log_predicted[measured]

    def _covariance(self, rows: Indices, columns: Indices, deviation: float) -> Array:
        """Prior covariance of errors, shape (rows, columns)."""
        log_predicted = self._predicted.log_bytes
        is_equal = log_predicted[rows][:, None] == log_predicted[columns]
        kernel = self._prior.misfit_kernel(rows, columns)
        covariance = self._hyperparameters.common_deviation**2
        covariance = covariance + deviation**2 * (is_equal + kernel) / 2
        # Curves with the same change from what they borrow err together.
        covariance = covariance + self._predicted.borrowed_covariance(rows, columns)
        curves = self._predicted.curves
        borrows = self._predicted.borrows[rows][:, None]
        is_same_curve = (curves[rows][:, None] == curves[columns]) & borrows
        return np.asarray(covariance + _BORROWED_CURVE_DEVIATION**2 * is_same_curve * kernel)

    def _variances(self, deviation: float) -> Array:
        """The diagonal of ``_covariance`` for all candidates."""
        exact = self._hyperparameters.common_deviation**2 + deviation**2
        borrowed = self._predicted.borrowed_variances()
        own = _BORROWED_CURVE_DEVIATION**2 * self._predicted.borrows
        return np.asarray(exact + borrowed + own)

    def _most_probable_deviation(self, measured: Indices, errors: Array) -> float:
        """The error of a single prediction under which the errors so far are most probable."""

        def log_density(deviation: float) -> float:
            """Logarithm of likelihood times prior, except for a constant."""
            covariance = self._covariance(measured, measured, deviation)
            covariance = covariance + self._hyperparameters.noise**2 * np.eye(len(errors))
            factor = np.linalg.cholesky(covariance)
            solved = np.linalg.solve(factor, errors)
            likelihood = float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())
            unusual = math.log(deviation / self._hyperparameters.usual_deviation)
            return likelihood - unusual**2 / 2

        return max(self._hyperparameters.deviations, key=log_density)
