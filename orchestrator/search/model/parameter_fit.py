"""The most probable parameters of a model: maximum a posteriori by Gauss-Newton steps."""

from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array
from orchestrator.search.model.performance_model import PerformanceModel


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterFit:
    """A nonlinear least-squares problem (Nocedal and Wright, Numerical Optimization, section 10.3)
    of measured costs from the model, parameters from their prior mean, and branches of the model
    from what was seen, each in deviations. SciPy's Levenberg-Marquardt finds lower losses further
    from the start, whose answers are worse."""

    model: PerformanceModel
    prior_mean: Array
    prior_precision: Array
    log_costs: Array
    """The measured costs of the performance model's candidates."""
    cost_precision: Array
    """Inverse covariance of what the model leaves unexplained and of the noise, shape (measured,
    measured)."""

    def best(self, start: Array) -> Array:
        """The parameters of a local minimum of the loss, found from ``start``."""
        parameters, loss = start, self._loss(start)
        # Ends when no step lowers the loss, or by little. A few steps are usually enough.
        for _ in range(20):
            step = self._step(parameters)
            # The quadratic model of the loss holds only near the parameters, so less may do.
            shorter = (parameters + step / 2**number for number in range(6))
            lower = next((own for own in shorter if self._loss(own) < loss), None)
            if lower is None:
                break
            before, loss, parameters = loss, self._loss(lower), lower
            if before - loss < 1e-3:
                break
        return parameters

    def _loss(self, parameters: Array) -> float:
        """Minus twice the logarithm of the posterior density, except for a constant."""
        residuals = self.log_costs - self.model.costs(parameters)
        moved = parameters - self.prior_mean
        violations = self.model.branch_violations(parameters)
        of_costs = residuals @ self.cost_precision @ residuals
        return float(of_costs + moved @ self.prior_precision @ moved + violations @ violations)

    def _step(self, parameters: Array) -> Array:
        """The Gauss-Newton step."""
        jacobian = self.model.jacobian(parameters)
        of_branches = self.model.branch_jacobian(parameters)
        residuals = self.log_costs - self.model.costs(parameters)
        weighted = jacobian.T @ self.cost_precision
        # The gradient of the loss, halved, with the sign of descent.
        descent = weighted @ residuals - self.prior_precision @ (parameters - self.prior_mean)
        descent -= of_branches.T @ self.model.branch_violations(parameters)
        # The Hessian without second derivatives, halved.
        curvature = weighted @ jacobian + self.prior_precision + of_branches.T @ of_branches
        step = np.linalg.solve(curvature, descent)
        # A step that changes a parameter by more than a factor of e is scaled down as a whole.
        return np.asarray(step / max(1.0, np.abs(step).max()))
