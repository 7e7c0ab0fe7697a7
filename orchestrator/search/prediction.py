"""Memory and speed of every configuration of a plan, learned from the measured ones, with error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from orchestrator.search.configurations import Configuration, Key, Measured
from orchestrator.search.surface import Surface


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """Of a configuration: what is likely, and at least so much memory and at most such a speed."""

    memory_low: float
    memory: float
    speed_high: float
    speed: float


class Surfaces:
    """Memory, and the seconds that a micro-batch takes."""

    def __init__(self, planned: Sequence[Configuration]) -> None:
        self._planned = planned
        self._place = {one: place for place, one in enumerate(planned)}
        self._memory, self._seconds = Surface(planned, per_step=False), Surface(planned, per_step=True)
        self._host_bound: dict[Configuration, Measured] = {}

    def put(self, configuration: Configuration, found: Measured) -> None:
        """A measured configuration, in place of what was known of it."""
        place = self._place[configuration]
        self._memory.put(place, found.memory_bytes)
        self._host_bound.pop(configuration, None)
        error = found.speed_error
        if found.is_host_bound:
            self._host_bound[configuration] = found
            restless = self._restlessness()
            for one, bound in self._host_bound.items():
                if one is not configuration:
                    self._seconds.doubt(self._place[one], max(bound.speed_error, restless))
            error = max(error, restless)
        self._seconds.put(place, configuration.micro_batch / found.samples_per_second, error)

    def _restlessness(self) -> float:
        """How far a host-bound speed may be off, relative: those of one curve should take equally long, and do not.

        Twice what a normal deviate's 95 % would be: a host changes its pace as it likes, and few rows tell of it.
        """
        curves: dict[Key, list[float]] = {}
        for one, found in self._host_bound.items():
            curves.setdefault(one.curve, []).append(math.log(one.micro_batch / found.samples_per_second))
        free = len(self._host_bound) - len(curves)
        apart = sum((value - fmean(values)) ** 2 for values in curves.values() for value in values)
        return 4 * math.sqrt(apart / free) if free else 0.0

    def predict(self, certainty: float) -> dict[Configuration, Prediction]:
        """Of every configuration, its bounds so many standard deviations away; empty where nothing is known."""
        memory, seconds = self._memory.estimate, self._seconds.estimate
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
