"""The part of the costs that the law does not describe: misfits, and effects of surprises.

A technique that is three times as slow as expected says nothing about the others. So a surprising
measurement gets an effect of its own, which it shares with candidates that have the same technique.
Without it, the distance would be spread over all techniques of its trial.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.error_scales import ErrorScales


@dataclass(frozen=True, kw_only=True, slots=True)
class ResidualKernel:
    """Covariances of this part of the logarithms of the costs."""

    prior: CostPrior
    misfit: float
    """Standard deviation of the misfits, the distances of costs from the law."""
    shares: Array
    """How much of each surprise's effect a candidate has, shape (candidates, surprises)."""
    deviations: Array
    """Standard deviations of these effects, shape (surprises,)."""

    def covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance between candidates, shape (rows, columns)."""
        of_misfits = self.misfit**2 * self.prior.misfit_kernel(rows, columns)
        of_surprises = (self.shares[rows] * self.deviations**2) @ self.shares[columns].T
        return np.asarray(of_misfits + of_surprises)

    def variances(self) -> Array:
        """The diagonal of ``covariance`` for all candidates, shape (candidates,)."""
        return np.asarray(self.misfit**2 + self.shares**2 @ self.deviations**2)


def residual_kernel_of(errors: ErrorScales, measured: Indices, prior: CostPrior) -> ResidualKernel:
    """What the errors of a model say. ``measured`` has the candidate of each measurement."""
    curve_of = prior.curves.curve_of
    surprising = list(errors.surprises)
    known = np.unique(curve_of[np.delete(measured, surprising)])
    shares = np.zeros((len(curve_of), len(surprising)))
    for number, curve in enumerate(curve_of[measured[surprising]]):
        shares[:, number] = prior.curves.new_choices(curve, known)[curve_of]
    return ResidualKernel(
        prior=prior,
        misfit=errors.misfit,
        shares=shares,
        deviations=np.array(list(errors.surprises.values())),
    )
