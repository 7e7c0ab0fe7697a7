"""Memory of every candidate: predicted and corrected by measurements, or else a learnt curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, rounded
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.error_scales import log_likelihoods
from orchestrator.search.model.memory.predicted_memory import PredictedMemory
from orchestrator.search.model.observations import Observation
from orchestrator.search.model.posterior import CostModel

_OUT_OF_MEMORY_MARGIN = 1.05
"""A candidate that ran out of memory counts as needing at least this many times the device's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorrectionHyperparameters:
    """Expected errors of memory predictions, as deviations of logarithms (0.05 is about 5 %)."""

    common_deviation: float = 0.05
    """Error that all predictions share, such as the CUDA context of an uncalibrated GPU."""
    deviations: tuple[float, ...] = (0.002, 0.005, 0.01, 0.03, 0.1)
    """Error of a single prediction. The most probable value is chosen after each measurement."""
    usual_deviation: float = 0.01
    """The most probable of ``deviations`` before any measurement."""
    noise: float = 0.0005
    """Error of a repeated measurement. Memory repeats almost to the byte."""
    transferred_curve: float = 0.2
    """Part of the error of a transferred sample memory that only the same curve has."""
    along_a_curve: float = 0.7
    """Correlation of this part between distant micro-batches of the curve."""
    loss: float = 0.3
    """Error of the memory of a loss in a step that transfers its prediction, as a share of it."""
    transferred_noise: float = 0.02
    """Error of a transferred prediction beside that of its sample memory: the base, and what the
    allocator keeps in its cache."""


_ERRORS = CorrectionHyperparameters()


class MemoryModel:
    """The logarithm of every candidate's bytes as a normal distribution. ``predicted_bytes`` (trial
    -> bytes) may grow, and needs only a few micro-batches of each curve."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._read_count = 0
        """Number of predictions when they were last read."""
        self._is_predicted = False
        self._predicted = PredictedMemory(candidates, predicted_bytes, priors)
        self.curves = self._predicted.curves
        """Index of each candidate's curve of memory, shape (candidates,)."""
        self._prior = CostPrior(candidates, priors, is_time=False)
        self._learnt = CostModel(self._prior)
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
        self._learnt.observe(index, Observation(cost=memory_bytes))

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
            self._learnt.learn()
            self.mean = self._learnt.mean
            self.deviation = np.sqrt(self._learnt.variance)
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
        """Correct the predictions by a Gaussian process over log(measured / predicted)."""
        measured, log_measured = self._known()
        deviation = self._most_probable_deviation(measured, log_measured)
        every = np.arange(len(self.curves))
        rest = self._rest_covariance(every, measured, deviation)
        of_samples = self._sample_covariance(every, measured)
        noise = np.diag(self._noise(measured) ** 2)
        sample_errors: Array = np.zeros(len(every))
        # For transferred predictions, most of the error is in the memory of the samples. It enters
        # through an exponential, so it is linearized at its latest estimate, and estimated again
        # (Gauss-Newton). Four steps estimate errors of a factor of two within 1 %.
        for _ in range(4):
            weights = self._predicted.sample_weights(sample_errors)
            covariance = rest + np.outer(weights, weights[measured]) * of_samples
            # Linearized at the errors e: log measured = log bytes(e) + weight · (error - e) + rest.
            at_zero = self._predicted.log_bytes(sample_errors) - weights * sample_errors
            left = log_measured - at_zero[measured]
            solved = np.linalg.solve(covariance[measured] + noise, left)
            sample_errors = of_samples @ (weights[measured] * solved)
        # Regression as in Rasmussen and Williams, 2006, equations 2.23 and 2.24.
        self.mean = rounded(self._predicted.log_bytes(sample_errors) + rest @ solved)
        variances = self._rest_variances(deviation) + weights**2 * self._sample_variances()
        self.deviation = _deviations_left(variances, covariance, covariance[measured] + noise)

    def _noise(self, measured: Indices) -> Array:
        """Error of each measurement beside those of the predictions, shape (measured,)."""
        transfers = self._predicted.transfers[measured]
        return np.where(transfers, _ERRORS.transferred_noise, _ERRORS.noise)

    def _known(self) -> tuple[Indices, Array]:
        """The candidates with a measurement, and the logarithm of the bytes of each."""
        log_predicted = self._predicted.log_bytes()
        known = dict(self._log_bytes)
        for index, lower_bound in self._lower_bounds.items():
            # A lower bound corrects a prediction only if the prediction is below it.
            if log_predicted[index] < lower_bound:
                known[index] = lower_bound
        return np.array(list(known), int), np.array(list(known.values()))

    def _rest_covariance(self, rows: Indices, columns: Indices, deviation: float) -> Array:
        """Prior covariance of all errors but those of sample memories, shape (rows, columns). Half
        of the variance of a single prediction is shared by equal ones, and half by similar
        candidates."""
        log_predicted = self._predicted.log_bytes()
        is_equal = log_predicted[rows][:, None] == log_predicted[columns]
        kernel = self._prior.discrepancy_kernel(rows, columns)
        common = _ERRORS.common_deviation**2
        covariance = common + deviation**2 * (is_equal + kernel) / 2
        # Curves that differ in the same way from their donor share the error of this difference.
        covariance = covariance + self._predicted.covariance(rows, columns, of_samples=False)
        of_loss = _ERRORS.loss * self._predicted.loss_shares()
        return np.asarray(covariance + np.outer(of_loss[rows], of_loss[columns]))

    def _rest_variances(self, deviation: float) -> Array:
        """The diagonal of ``_rest_covariance`` for all candidates."""
        exact = _ERRORS.common_deviation**2 + deviation**2
        of_loss = _ERRORS.loss * self._predicted.loss_shares()
        return np.asarray(exact + self._predicted.variances(of_samples=False) + of_loss**2)

    def _sample_covariance(self, rows: Indices, columns: Indices) -> Array:
        """Prior covariance of the errors of transferred sample memories, shape (rows, columns):
        that of the expected effects, and one that only the same curve has, at nearly the same share
        everywhere."""
        is_same = self.curves[rows][:, None] == self.curves[columns]
        is_same &= self._predicted.transfers[rows][:, None]
        distant = _ERRORS.along_a_curve
        along = distant + (1 - distant) * self._prior.discrepancy_kernel(rows, columns)
        own = _ERRORS.transferred_curve**2 * along * is_same
        return np.asarray(self._predicted.covariance(rows, columns, of_samples=True) + own)

    def _sample_variances(self) -> Array:
        """The diagonal of ``_sample_covariance`` for all candidates."""
        own = _ERRORS.transferred_curve**2 * self._predicted.transfers
        return np.asarray(self._predicted.variances(of_samples=True) + own)

    def _most_probable_deviation(self, measured: Indices, log_measured: Array) -> float:
        """The deviation of a single prediction that the errors of predictions of their own make
        most probable."""
        is_own = ~self._predicted.transfers[measured]
        own = measured[is_own]
        if not len(own):
            return _ERRORS.usual_deviation
        errors = (log_measured - self._predicted.log_bytes()[measured])[is_own]
        noise = np.full((1, len(own)), _ERRORS.noise**2)

        def log_density(deviation: float) -> float:
            covariance = self._rest_covariance(own, own, deviation)
            likelihood = float(log_likelihoods(covariance, noise, errors)[0])
            # The logarithm is expected to be the usual one, with a deviation of 1.
            return likelihood - math.log(deviation / _ERRORS.usual_deviation) ** 2 / 2

        return max(_ERRORS.deviations, key=log_density)


def _deviations_left(variances: Array, covariance: Array, of_measured: Array) -> Array:
    """Standard deviations after measurements, whose covariance with noise is ``of_measured``."""
    explained = np.einsum("ij,ji->i", covariance, np.linalg.solve(of_measured, covariance.T))
    # A variance can fall below zero by rounding.
    return rounded(np.sqrt(np.maximum(variances - explained, 0.0)))
