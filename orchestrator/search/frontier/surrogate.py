"""The surrogate: memory and speed of every candidate with bounds, from measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.frontier.cost_model import CostModel, Posterior
from orchestrator.search.frontier.memory_correction import MemoryCorrection
from orchestrator.search.model.arrays import Array, Indices, rounded
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.measurements import Measurement
from orchestrator.search.model.observations import Observation


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Bytes and samples per second of a candidate, with the bounds that favor it."""

    memory: float
    least_memory: float
    speed: float
    highest_speed: float


class Surrogate:
    """Posterior of the memory and of the seconds of a micro-batch.

    ``predicted_bytes`` maps trials to memory that was predicted without measuring. It may grow
    during the search. The memory of a candidate in this mapping is the prediction, corrected by
    measurements. The memory of any other candidate comes from a cost model, as its time does.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        predicted_bytes: Mapping[str, float],
        hyperparameters: Hyperparameters | None = None,
    ) -> None:
        self._candidates = candidates
        self._predicted_bytes = predicted_bytes
        self._sizes = np.array([candidate.micro_batch for candidate in candidates], float)
        self._index = {candidate: index for index, candidate in enumerate(candidates)}
        self._memory = CostModel(candidates, is_time=False, hyperparameters=hyperparameters)
        self._seconds = CostModel(candidates, is_time=True, hyperparameters=hyperparameters)
        self._correction = MemoryCorrection(candidates)

    def observe(self, candidate: Candidate, measurement: Measurement) -> None:
        """Learn from a measured candidate, in place of its earlier measurement."""
        index = self._index[candidate]
        if not self._is_all_memory_predicted():
            self._memory.observe(index, Observation(cost=measurement.memory_bytes))
        self._correction.observe(index, measurement.memory_bytes)
        seconds = candidate.micro_batch / measurement.samples_per_second
        self._seconds.observe(
            index,
            Observation(
                cost=seconds,
                relative_error=measurement.speed_error,
                branch=measurement.branch,
            ),
        )

    def predictions(self, z_score: float) -> dict[Candidate, Prediction]:
        """The prediction of every candidate, with bounds ``z_score`` standard deviations away.

        Empty before any measurement.
        """
        seconds = self._seconds.posterior
        if seconds is None:
            return {}
        memory = self._memory_posterior()
        # The bounds that favor a candidate: little memory, few seconds.
        least_memory = np.exp(memory.mean - z_score * memory.deviation)
        least_seconds = np.exp(seconds.mean - z_score * seconds.deviation)
        figures = (
            np.exp(memory.mean),
            least_memory,
            self._sizes / np.exp(seconds.mean),
            self._sizes / least_seconds,
        )
        predictions = {}
        rows = np.stack(figures, axis=1).tolist()
        for candidate, (likely, least, speed, highest) in zip(self._candidates, rows, strict=True):
            predictions[candidate] = Prediction(
                memory=likely, least_memory=least, speed=speed, highest_speed=highest
            )
        return predictions

    def highest_speed_ratios(
        self, candidates: Sequence[Candidate], others: Sequence[Candidate], z_score: float
    ) -> Array:
        """At most how many times as fast candidates are as others, shape (candidates, others).

        The bound is ``z_score`` standard deviations away. It is about the true speeds, not about
        what two trials would measure: it contains no noise, and uncertainty that both share cancels
        out. At least one candidate must be measured.
        """
        seconds = self._seconds.posterior
        assert seconds is not None
        rows = self._indices(candidates)
        columns = self._indices(others)
        # A ratio of speeds is the inverse ratio of the seconds of a sample; its upper bound adds
        # the uncertainty.
        uncertainty = z_score * np.sqrt(self._variance_of_ratios(rows, columns))
        log_ratio = uncertainty - seconds.mean[rows, None] + seconds.mean[columns]
        size_ratio = self._sizes[rows, None] / self._sizes[columns]
        return np.asarray(size_ratio * np.exp(rounded(log_ratio)))

    def _variance_of_ratios(self, rows: Indices, columns: Indices) -> Array:
        """Var(a - b) = Var(a) + Var(b) - 2 Cov(a, b), of the logarithms of the seconds."""
        covariance = self._seconds.covariance
        variances = np.diag(covariance)
        shared = covariance[np.ix_(rows, columns)]
        variance = variances[rows, None] + variances[columns] - 2 * shared
        # It can fall below zero by rounding.
        return np.maximum(variance, 0.0)

    def _indices(self, candidates: Sequence[Candidate]) -> Indices:
        return np.array([self._index[candidate] for candidate in candidates], int)

    def _is_all_memory_predicted(self) -> bool:
        for candidate in self._candidates:
            if candidate.trial_ids[0] not in self._predicted_bytes:
                return False
        return True

    def _memory_posterior(self) -> Posterior:
        """The corrected predictions. Candidates without one get the figures of the cost model."""
        predicted = []
        for candidate in self._candidates:
            predicted.append(self._predicted_bytes.get(candidate.trial_ids[0], math.nan))
        log_predicted = np.log(predicted)
        is_predicted = ~np.isnan(log_predicted)
        modeled = self._memory.posterior
        if modeled is not None and not is_predicted.any():
            return modeled
        corrected = self._correction.posterior(log_predicted)
        if modeled is None:
            return corrected
        # A candidate without a prediction gets the figures of the cost model.
        return Posterior(
            mean=np.where(is_predicted, corrected.mean, modeled.mean),
            deviation=np.where(is_predicted, corrected.deviation, modeled.deviation),
        )
