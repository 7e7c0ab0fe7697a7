"""Memory that was predicted before anything was measured, corrected by what is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.search.frontier.configurations import Configuration
from orchestrator.search.frontier.cost_model import Estimate
from orchestrator.search.frontier.similarity import Array, likeness

SHARED = 0.05
"""What the logarithm of all predictions together may be off by: a GPU whose context nobody has calibrated."""
USUAL = 0.01
"""What a prediction is off by, by itself; the data may say another of ``DEVIATIONS``, the farther the less likely."""
DEVIATIONS = (0.002, 0.005, 0.01, 0.03, 0.1)
REPEATED = 0.0005
"""What the same trial's memory varies by."""


class Correction:
    """measured = predicted × a factor near one. Half of its variation goes with what was predicted, for trials of which
    the same was predicted do the same with their memory; half is the more alike the nearer two configurations are."""

    def __init__(self, planned: Sequence[Configuration]) -> None:
        self._likeness = likeness(planned)
        self._measured: dict[int, float] = {}

    def put(self, index: int, nbytes: float) -> None:
        """The measured memory of a configuration, in place of an earlier one."""
        self._measured[index] = math.log(nbytes)

    def estimate(self, predicted: Array) -> Estimate:
        """From the logarithms of what was predicted of every configuration, NaN where nothing was, which stays NaN."""
        varies = (np.equal.outer(predicted, predicted) + self._likeness) / 2
        seen = np.array(
            [index for index in self._measured if not math.isnan(predicted[index])], int
        )
        off = np.array([self._measured[index] for index in seen]) - predicted[seen]
        deviation = max(
            DEVIATIONS, key=lambda one: _likelihood(one, varies[np.ix_(seen, seen)], off)
        )
        prior = SHARED**2 + deviation**2 * varies
        gain = np.linalg.solve(
            prior[np.ix_(seen, seen)] + REPEATED**2 * np.eye(len(seen)), prior[seen]
        )
        variance = np.diag(prior) - np.einsum("ij,ij->j", prior[seen], gain)
        mean, deviations = (
            predicted + gain.T @ off,
            np.sqrt(np.maximum(variance, 0.0) + REPEATED**2),
        )
        # Rounded, so that another machine's arithmetic leads to the same trials.
        return Estimate(mean=mean.round(6), deviation=deviations.round(6))


def _likelihood(deviation: float, varies: Array, off: Array) -> float:
    factor = np.linalg.cholesky(SHARED**2 + deviation**2 * varies + REPEATED**2 * np.eye(len(off)))
    solved = np.linalg.solve(factor, off)
    unusual = math.log(deviation / USUAL)
    return float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum()) - unusual**2 / 2
