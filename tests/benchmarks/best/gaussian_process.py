"""A plain Gaussian process with priors as a search: the textbook method, with the facts of
`search: best` and without its law of performance.

The logarithms of speed and of memory are two processes. Their means are the recorded effects of the
techniques. Their kernels add up the recorded deviations of these effects, a smooth function of the
micro-batch, and a residual that is similar for similar configurations. Predicted memory is data of
the process of memory. The next trial has the largest expected improvement per second, summed over
the budgets.
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from jobs.record import Outcome
from jobs.spec import TrialSpec
from tests.benchmarks.best.rivals import MICRO_BATCH, Rival

LEVEL = 3.0
"""Standard deviation of the logarithm of a model's speed or memory: hardly anything is known."""
SCALES = (0.5, 1.0, 2.0)
"""Factors of the recorded deviations; the likeliest is taken."""
HALVES = (2.0, 0.5, 8.0, 32.0)
"""Micro-batches with half of the highest speed, or with twice the memory of none; likewise."""
CURVES = (0.1, 0.3, 1.0)
"""Deviations of a smooth function of the micro-batch beside it; likewise."""
RESIDUALS = (0.03, 0.1)
"""Deviations of what techniques do together; likewise."""
LENGTH = 3.0
"""Of that function, in doublings."""
SPEED_NOISE = 0.01
PREDICTION_NOISE = 0.02
MEMORY_NOISE = 0.001


class GaussianProcess(Rival):
    """Expected improvement per second of slot time."""

    def __init__(self, trials: Iterable[TrialSpec], **facts: Any) -> None:
        super().__init__(trials, **facts)
        numbers = range(len(self.trials))
        effects = [self.effects(own) for own in numbers]
        times = [[effect.log_time for effect in row] for row in effects]
        memories = [[effect.log_memory for effect in row] for row in effects]
        size = np.array([trial.micro_batch for trial in self.trials])
        self._prior_speeds = [np.log(size / (size + own)) - np.sum(times, axis=1) for own in HALVES]
        self._prior_memories = [np.log(size + own) + np.sum(memories, axis=1) for own in HALVES]
        self._overhead = np.array([sum(own.overhead_seconds for own in row) for row in effects])
        self._of_speed = self._effect_kernel([[own.deviation for own in row] for row in effects])
        self._of_memory = self._effect_kernel(
            [[own.memory_deviation for own in row] for row in effects]
        )
        distance = np.log2(size[:, None] / size) / LENGTH
        self._smooth = np.exp(-(distance**2) / 2)
        self._residual = self._smooth * 0.5 ** np.sum(self._differences(), axis=0)

    def _differences(self) -> list[np.ndarray]:
        """Of each axis: which trials have another value."""
        columns = []
        for axis in self.axes:
            if axis != MICRO_BATCH:
                values = np.array([repr(trial.choices[axis]) for trial in self.trials])
                columns.append(values[:, None] != values)
        return columns

    def _effect_kernel(self, deviations: list[list[float]]) -> np.ndarray:
        """Covariance of the sums of the trials' effects; those of two values are independent."""
        total = np.zeros((len(self.trials), len(self.trials)))
        for column, differ in zip(np.array(deviations).T, self._differences(), strict=True):
            total += np.where(differ, 0.0, column[:, None] * column)
        return total

    def choose(self) -> int:
        numbers = np.array(sorted(self.open))
        memory, memory_deviation = self._memories()
        speed, deviation = self._speeds()
        seconds = self._seconds()
        gain = np.zeros(len(self.trials))
        for budget in self.budgets:
            fits = ndtr((math.log(budget) - memory) / memory_deviation)
            within = [own for own in self.records if self.memory(own) <= budget]
            if not within:
                # Nothing to improve on: the fastest that probably fits, whatever its time.
                return int(numbers[np.argmax((np.log(fits + 1e-12) + speed)[numbers])])
            best = max(math.log(self.speed(own) or 1e-9) for own in within)
            gain += fits * _improvement(speed - best, deviation)
        return int(numbers[np.argmax((gain / seconds)[numbers])])

    def _speeds(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every trial's log speed."""
        ok = [own for own in self.records if self.speed(own) is not None]
        values = np.array([math.log(self.speed(own) or 1.0) for own in ok])
        noise = np.full(len(ok), SPEED_NOISE)
        return self._posterior(self._prior_speeds, self._of_speed, ok, values, noise)

    def _memories(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every trial's log memory."""
        known: dict[int, tuple[float, float]] = {}
        for own, size in enumerate(self.predicted):
            if size is not None:
                known[own] = (math.log(size), PREDICTION_NOISE)
        for own, record in self.records.items():
            if record.outcome is Outcome.OK:
                known[own] = (math.log(self.memory(own)), MEMORY_NOISE)
            elif record.outcome is Outcome.OUT_OF_MEMORY:
                known[own] = (math.log(1.1 * record.environment["gpu_memory_bytes"]), 0.1)
        values, noise = np.array(list(known.values())).reshape(-1, 2).T
        return self._posterior(self._prior_memories, self._of_memory, list(known), values, noise)

    def _posterior(
        self,
        means: list[np.ndarray],
        of_effects: np.ndarray,
        at: list[int],
        values: np.ndarray,
        noise: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation everywhere, with the likeliest mean and kernel."""
        fits = []
        for scale, curve, residual in itertools.product(SCALES, CURVES, RESIDUALS):
            kernel = LEVEL**2 + scale**2 * of_effects + curve**2 * self._smooth
            kernel = kernel + residual**2 * self._residual
            factor = np.linalg.cholesky(kernel[np.ix_(at, at)] + np.diag(noise**2))
            cross = np.linalg.solve(factor, kernel[at])
            variance = np.diag(kernel) - (cross**2).sum(axis=0)
            for mean in means:
                white = np.linalg.solve(factor, values - mean[at])
                evidence = -(white @ white) / 2 - np.log(np.diag(factor)).sum()
                fits.append((evidence, mean + cross.T @ white, variance))
        _, found, variance = max(fits, key=lambda fit: fit[0])
        return found, np.sqrt(np.maximum(variance, 1e-8))

    def _seconds(self) -> np.ndarray:
        """Expected slot seconds: recorded overheads, beside the measured rest."""
        rest = [record.slot_seconds - self._overhead[own] for own, record in self.records.items()]
        usual = float(np.median(rest)) if rest else 1.0
        return np.maximum(self._overhead + usual, 0.5)


def _improvement(gain: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Expected improvement of a normal deviate over zero."""
    ratio = gain / deviation
    density = np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    improvement: np.ndarray = deviation * (ratio * np.exp(log_ndtr(ratio)) + density)
    return improvement
