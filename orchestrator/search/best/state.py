"""Everything that the records say so far: speeds, memory, costs of trials, and failures."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jobs.record import Outcome, TrialRecord
from orchestrator.search.best.data_loaders import NOTICED_DATA_SHARE, Loaders
from orchestrator.search.best.failures import Failures
from orchestrator.search.best.gain import Posterior
from orchestrator.search.best.trial_cost import TrialCost
from orchestrator.search.model.arrays import Array, Mask
from orchestrator.search.model.candidates import Candidate
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.measurements import Measurement, measurement_of
from orchestrator.search.model.memory.memory_model import MemoryModel
from orchestrator.search.model.observations import Observation
from orchestrator.search.model.performance_model import Branch
from orchestrator.search.model.posterior import CostModel

_HOST_NOISE = 0.2
"""A host-bound micro-batch may be this much faster than a measured one, as a logarithm."""
_HOST_ELSEWHERE = 1.4
"""The same with other techniques, which change the time of the host, too."""
_SPEED_NOISE = 0.015
"""Expected noise of a measured speed, as a logarithm."""


class SearchState:
    """The measurements of a plan's candidates, and the expectations for those not measured."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
        predicted_seconds: Mapping[str, float],
    ) -> None:
        """``predicted_bytes`` and ``predicted_seconds`` (trial -> memory, time of a sample) may
        grow."""
        self.candidates = candidates
        self._records: dict[int, list[TrialRecord]] = {}
        self.measured: dict[int, Measurement] = {}
        """Candidate -> its measurement; only candidates with a trial that ended ok."""
        self.device_bytes = 0
        """Memory of the GPU; 0 without a GPU, and before the first record."""
        self.forecast_log_speed = np.full(len(candidates), -math.inf)
        """By the forecast of the candidate, or of a twin with another data loader; -inf without."""
        self.slot_seconds = 0.0
        """Slot time of all trials so far."""
        self._is_current = False
        if not candidates:
            return
        prior_of_time = CostPrior(candidates, priors, is_time=True)
        self._predicted_seconds = predicted_seconds
        self._read_count = 0
        """Number of forecasts of times when they were last read."""
        self._sizes = prior_of_time.sizes
        self._blocks = np.array([own.samples for own in candidates], float)
        """Samples of a pass of each candidate, but blocks of packed ones, (candidates,)."""
        self._times = CostModel(prior_of_time)
        self._memory = MemoryModel(candidates, predicted_bytes, priors)
        self._costs = TrialCost(candidates, priors)
        self.failures = Failures(candidates, priors)
        self.loaders = Loaders(candidates)
        self._host_seconds = np.full(len(candidates), math.inf)
        """By curve: the shortest micro-batch that waited for the host, in seconds."""
        self._smallest_too_large = np.full(len(candidates), math.inf)
        """By curve of memory: the smallest micro-batch that ran out of memory."""

    def note(self, index: int, record: TrialRecord) -> None:
        """Learn from the record of a trial. ``index`` is the trial's candidate."""
        self._is_current = False
        self._records.setdefault(index, []).append(record)
        device_bytes = int(record.environment.get("gpu_memory_bytes") or 0)
        self.device_bytes = max(self.device_bytes, device_bytes)
        self.slot_seconds += record.slot_seconds
        self.failures.note(index, record)
        self._costs.note(index, record)
        if record.outcome is Outcome.OUT_OF_MEMORY:
            if self.device_bytes:
                self._memory.ran_out(index, self.device_bytes)
            curve = self._memory.curves[index]
            np.minimum.at(self._smallest_too_large, curve, self._sizes[index])
        measurement = measurement_of(self._records[index])
        if measurement is not None:
            self.measured[index] = measurement
            self._memory.observe(index, measurement.memory_bytes)
            observation = self._observation(index, measurement)
            self._times.observe(index, observation)
            if observation.branch == Branch.HOST_BOUND:
                np.minimum.at(self._host_seconds, self.failures.curves[index], observation.cost)
            # Where the host sets the pace, its loader does not matter either if it takes no time.
            self.loaders.note(index, measurement.data_share, observation.cost)

    def _observation(self, index: int, measurement: Measurement) -> Observation:
        """The seconds of a micro-batch, with their relative error."""
        error = measurement.speed_error
        # How fast a host prepares its batches varies a lot, so waiting for data is an error.
        if measurement.data_share > NOTICED_DATA_SHARE:
            error = max(error, measurement.speed_ci95 + measurement.data_share)
        return Observation(
            cost=self._samples[index] / measurement.samples_per_second,
            relative_error=error,
            branch=measurement.branch,
        )

    def _read_forecasts(self) -> None:
        """Expect the times that were forecast since the last call."""
        if self._read_count == len(self._predicted_seconds):
            return
        self._is_current = False
        self._read_count = len(self._predicted_seconds)
        known = dict(self._predicted_seconds)
        ids = [own.trial_ids[0] for own in self.candidates]
        # Costs are those of a pass, on all GPUs together.
        samples = self._samples / self._sizes
        self._times.expect(
            {at: known[own] * samples[at] for at, own in enumerate(ids) if own in known}
        )
        # No forecast depends on the data loader, and a twin may be the first to run.
        own_forecasts = -np.log([known.get(own, math.inf) for own in ids])
        self.forecast_log_speed = self.loaders.largest_of_twins(own_forecasts)

    @property
    def _samples(self) -> Array:
        """Rows of a pass of each candidate, shape (candidates,)."""
        return self._blocks * self._costs.rows_of_a_sample()

    @property
    def too_large(self) -> Mask:
        """Whether this or a smaller micro-batch of the same curve of memory ran out of memory."""
        return np.asarray(self._sizes >= self._smallest_too_large[self._memory.curves])

    @property
    def cannot_run(self) -> Mask:
        """Whether a candidate is given up or too large, shape (candidates,)."""
        return self.failures.given_up | self.too_large

    def posterior(self) -> Posterior | None:
        """The posterior of every candidate; None before a speed is measured."""
        if not self.measured:
            return None
        self._read_forecasts()
        if not self._is_current:
            self._times.learn()
            self._is_current = True
        # New predictions may have arrived since the last call, so memory is always learnt again.
        self._memory.learn()
        assert self._times.mean is not None
        assert self._memory.mean is not None
        # Samples per second are those of a pass divided by its seconds.
        of_model = np.log(self._samples) - self._times.mean
        log_speed = self._corrected(of_model)
        return Posterior(
            log_speed=log_speed,
            highest_log_speed=self._highest_log_speed(),
            model_errors=np.abs(log_speed - of_model),
            log_memory=self._memory.mean,
            memory_deviation=self._memory.deviation,
            works=self.failures.probability_to_work(),
            choices=self.failures.choices,
            choice_works=self.failures.probability_of_choices,
            times=self._times,
        )

    def _highest_log_speed(self) -> Array:
        """Upper bounds of the logarithms of the speeds, shape (candidates,). A micro-batch that
        waited for the host would take as long with more samples, and with fewer, so no micro-batch
        of the curve takes less time. Other techniques change the host's time, but a data loader
        does not."""
        on_curve = self._host_seconds[self.failures.curves] * math.exp(-_HOST_NOISE)
        elsewhere = self._host_seconds.min() * math.exp(-_HOST_ELSEWHERE)
        seconds = np.where(np.isinf(on_curve), elsewhere, on_curve)
        seconds = np.maximum(np.nan_to_num(seconds, posinf=0.0), self.loaders.least_seconds())
        # Without any bound the time is 0, and the speed infinite.
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._samples / seconds))

    def _corrected(self, of_model: Array) -> Array:
        """Expected speeds, but the measured one where the model is far from it. The model averages
        the noise of similar trials, so it is better than a single measurement. A difference beyond
        any noise is the model's error. Shape (candidates,)."""
        log_speed = of_model.copy()
        for index, measurement in self.measured.items():
            log_measured = math.log(measurement.samples_per_second)
            difference = log_speed[index] - log_measured
            # The weight of a Cauchy distribution: 1/2 at the scale of the noise, and near 0 beyond.
            weight = 1 / (1 + (difference / _SPEED_NOISE) ** 2)
            log_speed[index] = log_measured + weight * difference
        return log_speed

    def seconds(self, posterior: Posterior) -> Array:
        """Expected slot time of a trial of each candidate, shape (candidates,)."""
        return self._costs.seconds(np.exp(posterior.log_speed))
