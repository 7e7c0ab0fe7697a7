"""Memory and speed of every configuration of a plan, learned from the measured ones, with error bars."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from orchestrator.search.configurations import Configuration, Key, Measured
from orchestrator.search.correction import Correction
from orchestrator.search.surface import Estimate, Surface

_HOST_BOUND = 0.5
"""A row is the host's altogether where the device ran dry after more than this share of its micro-batches."""


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
        self._memory, self._seconds = Surface(planned, per_step=False), Surface(planned, per_step=True)
        self._correction = Correction(planned)
        self._hosts: dict[Configuration, Measured] = {}

    def put(self, configuration: Configuration, found: Measured) -> None:
        """A measured configuration, in place of what was known of it."""
        place = self._place[configuration]
        self._memory.put(place, found.memory_bytes)
        self._correction.put(place, found.memory_bytes)
        self._hosts.pop(configuration, None)
        error = found.speed_error
        if found.host_bound_share:
            self._hosts[configuration] = found
            restless = self._restlessness()
            for one, bound in self._hosts.items():
                if one is not configuration:
                    self._seconds.doubt(self._place[one], _error_of(bound, restless))
            error = _error_of(found, restless)
        self._seconds.put(place, configuration.micro_batch / found.samples_per_second, error)

    def _restlessness(self) -> float:
        """How far a host-bound speed may be off, relative: those of one curve should take equally long, and do not.

        Twice what a normal deviate's 95 % would be: a host changes its pace as it likes, and few rows tell of it.
        """
        curves: dict[Key, list[float]] = {}
        bound = {one: found for one, found in self._hosts.items() if found.host_bound_share > _HOST_BOUND}
        for one, found in bound.items():
            curves.setdefault(one.curve, []).append(math.log(one.micro_batch / found.samples_per_second))
        free = len(bound) - len(curves)
        apart = sum((value - fmean(values)) ** 2 for values in curves.values() for value in values)
        return 4 * math.sqrt(apart / free) if free else 0.0

    def _memory_of_all(self) -> Estimate | None:
        """By what was predicted where that is known, else by the law that the measured ones follow."""
        law = self._memory.estimate
        predicted = np.log([self._predicted.get(one.trial_ids[0], math.nan) for one in self._planned])
        if law is None or np.isnan(predicted).all():
            return law
        corrected = self._correction.estimate(predicted)
        known = ~np.isnan(predicted)
        return Estimate(
            mean=np.where(known, corrected.mean, law.mean),
            deviation=np.where(known, corrected.deviation, law.deviation),
        )

    def predict(self, certainty: float) -> dict[Configuration, Prediction]:
        """Of every configuration, its bounds so many standard deviations away; empty where nothing is known."""
        memory, seconds = self._memory_of_all(), self._seconds.estimate
        if memory is None or seconds is None:
            return {}
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


def _error_of(found: Measured, restless: float) -> float:
    """How far a speed may be off where hosts are so restless: as much as it is the host's."""
    return max(found.speed_error, restless * min(1.0, found.host_bound_share / _HOST_BOUND))
