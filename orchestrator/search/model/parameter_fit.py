"""The most probable parameters of a cost law: maximum a posteriori, by least squares."""

from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array
from orchestrator.search.model.performance_model import PerformanceModel


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterFit:
    """A nonlinear least-squares problem.

    The loss is the sum of three squares, each in deviations: measured costs from the law,
    parameters from their prior mean, and branches of the law from what was seen.
    """

    law: PerformanceModel
    prior_mean: Array
    prior_precision: Array
    log_costs: Array
    """The measured costs of the law's candidates."""
    cost_precision: Array
    """Inverse covariance of what the law leaves unexplained and of the noise, shape (measured,
    measured)."""

    def best(self, start: Array) -> Array:
        """The parameters of a local minimum of the loss, found from ``start``."""
        from scipy.optimize import least_squares  # takes a tenth of a second to import

        # With L Lᵀ = P, the squares of Lᵀ x add up to xᵀ P x.
        of_costs = np.linalg.cholesky(self.cost_precision).T
        of_prior = np.linalg.cholesky(self.prior_precision).T

        def deviations(parameters: Array) -> Array:
            parts = (
                of_costs @ (self.law.costs(parameters) - self.log_costs),
                of_prior @ (parameters - self.prior_mean),
                self.law.branch_violations(parameters),
            )
            return np.concatenate(parts)

        def jacobian(parameters: Array) -> Array:
            of_branches = self.law.branch_jacobian(parameters)
            return np.vstack([of_costs @ self.law.jacobian(parameters), of_prior, of_branches])

        # Ends when a step changes the loss, or the parameters, by a smaller share.
        enough = {"ftol": 1e-5, "xtol": 1e-5}
        found = least_squares(deviations, start, jac=jacobian, method="lm", **enough)
        return np.asarray(found.x)
