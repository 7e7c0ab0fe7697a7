"""Pairs of techniques whose effects on the time do not add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.effects.unrecorded import INTERACTIONS, Effect


@dataclass(frozen=True, kw_only=True, slots=True)
class Interaction:
    """The effect of having a pair of techniques, beyond the effects of each."""

    expected: Effect
    is_changed: Array
    """1 for each curve where both axes differ from the first candidate's, otherwise 0. Shape
    (curves,)."""
    codes: Array
    """Indices of each curve's values on the two axes, shape (curves, 2)."""
    similarities: Sequence[Array]
    """For each of the two axes, the correlation of the effects of its values, (values, values)."""

    @property
    def log_effects(self) -> Array:
        """Expected logarithm of the effect on each curve's time, shape (curves,)."""
        return self.expected.log_time * self.is_changed

    @property
    def variances(self) -> Array:
        """Variances of these logarithms, shape (curves,)."""
        return self.expected.deviation**2 * self.is_changed

    def covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance of these logarithms between curves, shape (rows, columns)."""
        covariance = np.outer(self.is_changed[rows], self.is_changed[columns])
        for axis, similarity in enumerate(self.similarities):
            covariance *= similarity[self.codes[rows, axis][:, None], self.codes[columns, axis]]
        return np.asarray(self.expected.deviation**2 * covariance)


def interactions_of(
    axes: Sequence[str], codes: Array, similarities: Sequence[Array]
) -> list[Interaction]:
    """The known interactions between axes of a plan.

    ``codes`` are the indices of the curves' values on these axes, shape (curves, axes). The index 0
    is the value of the plan's first candidate.
    """
    listed = []
    for pair, expected in INTERACTIONS.items():
        if set(pair) <= set(axes):
            columns = [axes.index(axis) for axis in pair]
            of_pair = codes[:, columns]
            listed.append(
                Interaction(
                    expected=expected,
                    is_changed=np.asarray((of_pair > 0).all(axis=1), float),
                    codes=of_pair,
                    similarities=[similarities[column] for column in columns],
                )
            )
    return listed
