"""Pruning: which candidates need not be measured, one method a rule, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.record import Outcome, TrialRecord
from orchestrator.search.frontier import pruning_reasons
from orchestrator.search.frontier.similarity import with_no_more_host_work
from orchestrator.search.frontier.surrogate import Prediction, Surrogate
from orchestrator.search.model.arrays import Array
from orchestrator.search.model.candidates import Candidate, Curve, Techniques
from orchestrator.search.model.measurements import Measurement

Z_SCORE = 2.5
"""Standard deviations from a prediction to the bound that favors its candidate.

Of normally distributed figures 1 in 160 is beyond it."""
MAX_EXTRAPOLATION = 16
"""Predictions count up to this many times the largest micro-batch that ran on the curve.

Runs on the reference curve count, too. Up to some micro-batch the cost is a constant floor
(``cost_law``). Trials there do not show at which micro-batch the cost begins to grow."""
HOST_PACE_VARIATION = 0.1
"""How much the speed of a host varies from trial to trial. Smaller differences count as none."""


@dataclass(frozen=True, slots=True)
class PruningDecision:
    """Why a candidate is not measured."""

    rule: str
    reason: str
    """One sentence."""
    tolerance: float | None = None
    """The test by which a measurement of the candidate shows that the decision was wrong.

    With a share, the candidate has to be faster, by more than this share, than every measured
    candidate that needs no more memory. With None it only has to fit."""


class Pruning:
    """What has been measured, and what that rules out. Decisions may change with every record.

    ``tolerance`` is the share of memory and speed by which a candidate has to be better to be worth
    a trial.
    """

    def __init__(
        self, candidates: Sequence[Candidate], surrogate: Surrogate, tolerance: float
    ) -> None:
        self._candidates = candidates
        self._surrogate = surrogate
        self._tolerance = tolerance
        # The rows of the matrix of speed ratios below.
        self._row = {candidate: row for row, candidate in enumerate(candidates)}
        self._with_no_more_host_work = with_no_more_host_work(candidates)
        """Candidate -> the candidates whose steps need no more host work than its own steps."""
        self._largest_run: dict[Curve, int] = {}
        """Curve -> the largest micro-batch that ran, however it ended."""
        self._out_of_memory: dict[Techniques, list[tuple[Candidate, str]]] = {}
        """Techniques -> what ran out of memory, and in which trial."""
        self._device_bytes = 0
        self.measurements: dict[Candidate, Measurement] = {}
        """The measurements of the candidates that ended ok."""
        self._speed_ratios: Array = np.zeros((len(candidates), 0))
        """``Surrogate.highest_speed_ratios`` of all candidates to the measured ones."""

    def ended(self, candidate: Candidate, record: TrialRecord) -> None:
        """Take note of a trial of a candidate, whatever its outcome."""
        curve = candidate.curve
        self._largest_run[curve] = max(self._largest_run.get(curve, 0), candidate.micro_batch)
        device_bytes = int(record.environment.get("gpu_memory_bytes") or 0)
        self._device_bytes = max(self._device_bytes, device_bytes)
        if record.outcome is Outcome.OUT_OF_MEMORY:
            failures = self._out_of_memory.setdefault(candidate.techniques, [])
            failures.append((candidate, record.trial_id))

    def measured(self, candidate: Candidate, measurement: Measurement | None) -> None:
        """Replace a candidate's measurement. None removes it: no repeat ended ok."""
        self.measurements.pop(candidate, None)
        if measurement is not None:
            self.measurements[candidate] = measurement
            self._surrogate.observe(candidate, measurement)

    def predictions(self) -> Mapping[Candidate, Prediction]:
        """The prediction of every candidate; empty before any measurement.

        Decisions follow from the measurements at the time of this call.
        """
        predictions = self._surrogate.predictions(Z_SCORE)
        if predictions:
            self._speed_ratios = self.highest_speed_ratios(
                self._candidates, list(self.measurements)
            )
        return predictions

    def highest_speed_ratios(
        self, candidates: Sequence[Candidate], others: Sequence[Candidate]
    ) -> Array:
        """``Surrogate.highest_speed_ratios`` with the z_score of the decisions."""
        return self._surrogate.highest_speed_ratios(candidates, others, Z_SCORE)

    def decision(
        self, candidate: Candidate, prediction: Prediction | None
    ) -> PruningDecision | None:
        """Why a candidate need not be measured; None if it has to be.

        Without a prediction, a candidate is pruned only if one that surely needs no more memory ran
        out of memory.
        """
        decision = self._out_of_memory_below(candidate)
        if decision is not None or prediction is None or self._is_extrapolated(candidate):
            return decision
        for rule in (self._more_than_the_device, self._dominated, self._host_bound):
            decision = rule(candidate, prediction)
            if decision is not None:
                return decision
        return None

    def contradicts(
        self, decision: PruningDecision, candidate: Candidate, measurement: Measurement
    ) -> bool:
        """Whether a decision was wrong, now that its candidate is measured."""
        if decision.tolerance is None:
            return True
        fastest = 0.0
        for _, _, rival in self._rivals(candidate, measurement.memory_bytes):
            fastest = max(fastest, rival.samples_per_second)
        # The decision allowed this candidate to be better by the tolerance, and no more.
        return fastest < (1 - decision.tolerance) * measurement.samples_per_second

    def _is_extrapolated(self, candidate: Candidate) -> bool:
        """Whether its micro-batch is too far beyond what ran for a prediction to count."""
        on_curve = self._largest_run.get(candidate.curve, 0)
        on_reference = self._largest_run.get(candidate.reference_curve, 0)
        return candidate.micro_batch > MAX_EXTRAPOLATION * max(on_curve, on_reference)

    def _out_of_memory_below(self, candidate: Candidate) -> PruningDecision | None:
        """A candidate of the same techniques that surely needs no more memory ran out of memory."""
        for other, trial_id in self._out_of_memory.get(candidate.techniques, ()):
            if _needs_no_less_memory(candidate, other):
                reason = pruning_reasons.out_of_memory_below(other.micro_batch, trial_id)
                return PruningDecision("out_of_memory_below", reason)
        return None

    def _more_than_the_device(
        self, candidate: Candidate, prediction: Prediction
    ) -> PruningDecision | None:
        """Even the lowest likely memory of the candidate is more than the device has."""
        if not 0 < self._device_bytes < prediction.least_memory:
            return None
        trial_ids = self._trials_near(candidate)
        reason = pruning_reasons.more_than_the_device(prediction, self._device_bytes, trial_ids)
        return PruningDecision("more_than_the_device", reason)

    def _trials_near(self, candidate: Candidate) -> list[str]:
        """The measured trials on the candidate's curves; all trials if these have none."""
        curves = (candidate.curve, candidate.reference_curve)
        near = []
        everywhere = []
        for other, measurement in self.measurements.items():
            everywhere.append(measurement.trial_id)
            if other.curve in curves:
                near.append(measurement.trial_id)
        return near or everywhere

    def _dominated(self, candidate: Candidate, prediction: Prediction) -> PruningDecision | None:
        """A measured candidate is about as good as this one at its best, or better.

        About means within the tolerance. A measured candidate that is clearly slower than the
        prediction for this one is no evidence, so it prunes nothing.
        """
        likely_speed = (1 - self._tolerance) * prediction.speed
        # The measured candidates that are fast enough. The ratio says how many times their speed
        # this candidate may reach at most.
        ratios = self._speed_ratios[self._row[candidate]]
        rivals = []
        for column, _, rival in self._rivals(candidate, prediction.least_memory):
            if rival.samples_per_second >= likely_speed:
                rivals.append((ratios[column], rival))
        if not rivals:
            return None
        # The rival with the lowest ratio decides.
        ratio, best = min(rivals, key=_ratio)
        if (1 - self._tolerance) * ratio > 1:
            return None
        reason = pruning_reasons.dominated(prediction, best, ratio, self._tolerance)
        return PruningDecision("dominated", reason, self._tolerance)

    def _host_bound(self, candidate: Candidate, prediction: Prediction) -> PruningDecision | None:
        """A measured candidate was host-bound, and this one needs at least as much host work.

        A measured candidate that is slower than the prediction for this one, by more than a host's
        pace varies, is no evidence. It prunes nothing.
        """
        likely_speed = (1 - HOST_PACE_VARIATION) * prediction.speed
        with_no_more_host_work = self._with_no_more_host_work[candidate]
        for _, other, rival in self._rivals(candidate, prediction.least_memory):
            is_host_bound = rival.host_bound_share == 1
            is_as_fast_as_expected = rival.samples_per_second >= likely_speed
            if is_host_bound and is_as_fast_as_expected and other in with_no_more_host_work:
                reason = pruning_reasons.host_bound(prediction, rival, HOST_PACE_VARIATION)
                return PruningDecision("host_bound", reason, HOST_PACE_VARIATION)
        return None

    def _rivals(
        self, candidate: Candidate, memory_bytes: float
    ) -> Iterator[tuple[int, Candidate, Measurement]]:
        """The measured candidates of the same training recipe that need about no more memory.

        Each comes with its number among all measured candidates, and its measurement.
        """
        # ``analysis.pareto`` cannot be used here. This dominance has a tolerance, and the bounds
        # depend on both candidates.
        limit = (1 + self._tolerance) * memory_bytes
        for column, (other, measurement) in enumerate(self.measurements.items()):
            is_comparable = other.training_recipe == candidate.training_recipe
            if is_comparable and measurement.memory_bytes <= limit:
                yield column, other, measurement


def _ratio(rival: tuple[float, Measurement]) -> float:
    return rival[0]


def _needs_no_less_memory(candidate: Candidate, other: Candidate) -> bool:
    """Whether a candidate surely needs at least the memory of another with the same techniques.

    Memory grows with the micro-batch, and with the step from one pass to several.
    """
    if candidate.micro_batch < other.micro_batch:
        return False
    return candidate.curve == other.curve or candidate.accumulation >= other.accumulation
