"""Memory and speed of every configuration of a plan, learned from the measured ones, with error bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.steady_state import GPU_BOUND
from orchestrator.search.frontier.configurations import Configuration, Measured
from orchestrator.search.frontier.cost_model import (
    EITHER,
    FLOOR,
    RISING,
    Estimate,
    Indices,
    Surface,
)
from orchestrator.search.frontier.memory_correction import Correction
from orchestrator.search.frontier.similarity import Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Of a configuration: what is likely, and at least so much memory and at most such a speed."""

    memory_low: float
    memory: float
    speed_high: float
    speed: float


class Surfaces:
    """Memory, and the seconds that a micro-batch takes.

    ``predicted`` has the bytes that were predicted of trials before anything was measured; it may grow meanwhile.
    """

    def __init__(self, planned: Sequence[Configuration], predicted: Mapping[str, float]) -> None:
        self._planned, self._predicted = planned, predicted
        self._place = {one: place for place, one in enumerate(planned)}
        self._memory, self._seconds = (
            Surface(planned, per_step=False),
            Surface(planned, per_step=True),
        )
        self._correction = Correction(planned)

    def put(self, configuration: Configuration, found: Measured) -> None:
        """A measured configuration, in place of what was known of it."""
        place = self._place[configuration]
        if any(
            one.trial_ids[0] not in self._predicted for one in self._planned
        ):  # or nobody asks for the law
            self._memory.put(place, found.memory_bytes)
        self._correction.put(place, found.memory_bytes)
        seconds, side = configuration.micro_batch / found.samples_per_second, _side(found)
        waited = found.launch_bound_share if side == EITHER else 0.0
        self._seconds.put(place, seconds, found.speed_error + waited, side)

    def _memory_of_all(self) -> Estimate:
        """By what was predicted where that is known, else by the law that the measured ones follow."""
        predicted = np.log(
            [self._predicted.get(one.trial_ids[0], math.nan) for one in self._planned]
        )
        known, law = ~np.isnan(predicted), self._memory.estimate
        if law is not None and not known.any():
            return law
        corrected = self._correction.estimate(predicted)
        if law is None:
            return corrected
        return Estimate(
            mean=np.where(known, corrected.mean, law.mean),
            deviation=np.where(known, corrected.deviation, law.deviation),
        )

    def predict(self, certainty: float) -> dict[Configuration, Prediction]:
        """Of every configuration, its bounds so many standard deviations away; empty where nothing is known."""
        if (seconds := self._seconds.estimate) is None:
            return {}
        memory = self._memory_of_all()
        size = np.array([one.micro_batch for one in self._planned], float)
        columns = (
            np.exp(memory.mean - certainty * memory.deviation),
            np.exp(memory.mean),
            size / np.exp(seconds.mean - certainty * seconds.deviation),
            size / np.exp(seconds.mean),
        )
        rows = zip(self._planned, *(column.tolist() for column in columns), strict=True)
        return {
            one: Prediction(memory_low=low, memory=likely, speed_high=high, speed=speed)
            for one, low, likely, high, speed in rows
        }

    def leads(
        self, ones: Sequence[Configuration], others: Sequence[Configuration], certainty: float
    ) -> Array:
        """At most how many times as fast each is as each of the others, so many standard deviations away, shape
        (ones, others). It is of their own speeds, not of what two trials would measure: no noise of rows is in it, and
        a doubt that both share cancels out. Something must have been measured."""
        seconds, doubt = self._seconds.estimate, self._seconds.doubt
        assert seconds is not None
        (rows, a_step), (columns, other_step) = (self._rows(some) for some in (ones, others))
        own = np.diag(doubt)
        variance = own[rows, None] + own[columns] - 2 * doubt[np.ix_(rows, columns)]
        ahead = (
            certainty * np.sqrt(np.maximum(variance, 0.0))
            - seconds.mean[rows, None]
            + seconds.mean[columns]
        )
        return np.asarray(a_step[:, None] / other_step * np.exp(ahead.round(6)))

    def _rows(self, some: Sequence[Configuration]) -> tuple[Indices, Array]:
        """Where they stand, and how many samples a micro-batch of each has."""
        return np.array([self._place[one] for one in some], int), np.array(
            [one.micro_batch for one in some], float
        )


def _side(found: Measured) -> int:
    """A host-bound time is the host's: the GPU may need less, so of that it only says that it is no more. Of one that
    is the host's in part, it is open whose it is."""
    if found.host_bound_share is None:
        return EITHER
    if found.host_bound_share > GPU_BOUND:
        return FLOOR
    return RISING if found.launch_bound_share <= GPU_BOUND else EITHER
