"""The posterior of one cost of every candidate, from few measurements, for very large plans.

The cost is either the time of a micro-batch or the memory. The performance model is fitted to the
measured candidates only. The other candidates follow from their covariances with the measured ones,
so no matrix has a row and a column for every candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, rounded
from orchestrator.search.model.cost_prior import CostPrior
from orchestrator.search.model.error_scales import ErrorScales, Residuals, errors_of
from orchestrator.search.model.observations import Measured, Observation, as_arrays
from orchestrator.search.model.parameter_fit import ParameterFit
from orchestrator.search.model.performance_model import Branch, PerformanceModel

_UNCERTAIN_EXPONENT = 6.0
"""Exponent of the norm where the floor of a curve was not measured. It is 1.7 / deviation of the
floor from the line, about 0.3: the logistic function then is close to the normal one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _ResidualKernel:
    """The part of the costs that the model does not describe: discrepancies, and effects of
    outliers. A technique that is three times as slow as expected says nothing about the others, so
    an outlier gets an effect of its own, shared by candidates that have the same technique."""

    prior: CostPrior
    discrepancy: float
    """Standard deviation of the discrepancies, the distances of costs from the model."""
    shares: Array
    """How much of each outlier's effect a candidate has, shape (candidates, outliers)."""
    deviations: Array
    """Standard deviations of these effects, shape (outliers,)."""

    def covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance between candidates, shape (rows, columns)."""
        of_discrepancies = self.discrepancy**2 * self.prior.discrepancy_kernel(rows, columns)
        of_outliers = (self.shares[rows] * self.deviations**2) @ self.shares[columns].T
        return np.asarray(of_discrepancies + of_outliers)

    def variances(self) -> Array:
        """The diagonal of ``covariance`` for all candidates, shape (candidates,)."""
        return np.asarray(self.discrepancy**2 + self.shares**2 @ self.deviations**2)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Posterior:
    """The performance model linearized at its fit, and the matrices of the regression."""

    derivatives: Array
    residual: _ResidualKernel
    to_measured: Array
    """Prior covariance of all costs with the measured ones, shape (candidates, measured)."""
    precision: Array
    """Inverse covariance of the measured costs with their noise, shape (measured, measured)."""
    scale: float
    """Factor on all variances and covariances."""


class CostModel:
    """Posterior of the logarithms of all costs. Before a measurement ``mean`` is None."""

    def __init__(self, prior: CostPrior) -> None:
        self._prior = prior
        self._hyperparameters = prior.hyperparameters
        self._observations: dict[int, Observation] = {}
        self._posterior: _Posterior | None = None
        self.mean: Array | None = None
        """Expected logarithm of each candidate's cost, shape (candidates,)."""
        self.variance: Array = np.zeros(0)
        """Variance of these logarithms, without the noise of a trial, shape (candidates,)."""

    def expect(self, seconds: Mapping[int, float]) -> None:
        """Expect forecast seconds of a sample, by candidate. ``learn`` then uses it."""
        self._prior.expect(seconds)

    def observe(self, index: int, observation: Observation) -> None:
        """Note a measured cost, which replaces an earlier one. ``learn`` then uses it."""
        self._observations[index] = observation

    def learn(self) -> None:
        """Fit the performance model, and compute the posterior from all observations so far."""
        if not self._observations:
            return
        measured = as_arrays(self._observations, self._prior)
        # Two fits: the residuals of the first one show how large noise and discrepancy are, and the
        # second one uses these scales.
        first = self._first_fit(measured)
        start = first.best(first.prior_mean)
        errors = errors_of(self._residuals(first, measured, start), self._hyperparameters)
        # Independent errors add up as variances: the stated error of a trial, and the noise between
        # trials. The discrepancy of the performance model is correlated between similar candidates.
        variances = measured.stated_variances + errors.noises**2
        residual = _residual_kernel(errors, measured.rows, self._prior)
        discrepancies = residual.covariance(measured.rows, measured.rows)
        precision = np.linalg.inv(discrepancies + np.diag(variances))
        moved = replace(first, cost_precision=precision).best(start) - first.prior_mean
        self._infer(measured, moved, variances, residual, errors.posterior_scale)

    def covariance(self, rows: Indices, columns: Indices) -> Array:
        """Posterior covariance of the costs of candidates, shape (rows, columns)."""
        posterior = self._posterior
        assert posterior is not None
        # The posterior of a Gaussian process: prior covariance minus the part that the measurements
        # explain.
        prior = self._prior.between(posterior.derivatives, rows, columns)
        prior += posterior.residual.covariance(rows, columns)
        explained = posterior.to_measured[rows] @ posterior.precision
        left = prior - explained @ posterior.to_measured[columns].T
        return np.asarray(posterior.scale * left)

    def _prior_mean(self, curves: Indices, measured: Measured) -> Array:
        """Expected parameters of curves, from the size of costs and the effects of techniques."""
        seen = self._prior.curves.curve_of[measured.rows]
        usual = np.median(self._prior.effects[:, seen], axis=1, keepdims=True)
        effects = (self._prior.effects - usual)[:, curves]
        unit = float(measured.log_costs.min())
        per_sample = measured.log_costs - np.log(self._prior.sizes[measured.rows])
        floor = unit - self._hyperparameters.floor_below
        base = unit - self._hyperparameters.base_below
        slope = float(np.median(per_sample)) - self._hyperparameters.slope_below
        of_curves = np.array([[floor], [base], [slope]]) + effects
        return np.concatenate([of_curves.ravel(), self._prior.overhead_means])

    def _first_fit(self, measured: Measured) -> ParameterFit:
        """The model of the measured candidates and their curves only, to fit with usual errors."""
        kernel = self._prior.discrepancy_kernel(measured.rows, measured.rows)
        usual = self._hyperparameters.usual_noise
        variances = measured.stated_variances + usual**2
        return ParameterFit(
            model=self._model(measured.rows, measured.curves, measured),
            prior_mean=self._prior_mean(measured.curves, measured),
            prior_precision=np.linalg.inv(self._prior.of_parameters(measured.curves)),
            log_costs=measured.log_costs,
            cost_precision=np.linalg.inv(usual**2 * kernel + np.diag(variances)),
        )

    def _model(self, rows: Indices, curves: Indices, measured: Measured) -> PerformanceModel:
        """The performance model of some candidates. ``curves`` are theirs, ascending."""
        exponents = np.full(len(self._prior.sizes), self._hyperparameters.max_norm_exponent)
        branches = np.full(len(exponents), Branch.UNKNOWN, int)
        branches[measured.rows] = measured.branches
        if self._prior.is_time:
            on_floor = measured.rows[measured.branches == Branch.HOST_BOUND]
            curve_of = self._prior.curves.curve_of
            is_uncertain = ~np.isin(curve_of, curve_of[on_floor])
            is_uncertain[measured.rows] = False
            exponents[is_uncertain] = _UNCERTAIN_EXPONENT
        return PerformanceModel(
            sizes=self._prior.sizes[rows],
            overhead_shares=self._prior.overhead_shares[rows],
            curves=np.searchsorted(curves, self._prior.curves.curve_of[rows]),
            curve_count=len(curves),
            families=self._prior.families[rows],
            unit=measured.unit,
            branches=branches[rows],
            norm_exponents=exponents[rows],
        )

    def _residuals(self, fit: ParameterFit, measured: Measured, parameters: Array) -> Residuals:
        """The differences between the measurements and the model, linearized at the parameters."""
        jacobian = fit.model.jacobian(parameters)
        from_model = measured.log_costs - fit.model.costs(parameters)
        # Linearized at p, model(prior mean) = model(p) - J (p - prior mean), and the parameters'
        # covariance C becomes J C Jᵀ for the costs.
        return Residuals(
            from_prior=from_model + jacobian @ (parameters - fit.prior_mean),
            from_model=from_model,
            parameter_covariance=jacobian @ self._prior.of_parameters(measured.curves) @ jacobian.T,
            discrepancy_kernel=self._prior.discrepancy_kernel(measured.rows, measured.rows),
            known_variances=measured.stated_variances,
            is_on_floor=measured.branches == Branch.HOST_BOUND,
        )

    def _infer(
        self,
        measured: Measured,
        moved: Array,
        variances: Array,
        residual: _ResidualKernel,
        scale: float,
    ) -> None:
        """The posterior of all candidates by Gaussian process regression (Rasmussen and Williams,
        sections 2.2 and 2.7), with the model linearized at the fit, which ``moved`` from the prior
        mean."""
        every = np.arange(len(self._prior.sizes))
        model, parameters = self._extended(measured, moved)
        costs = model.costs(parameters)
        derivatives = model.derivatives(parameters)
        residuals_with_measured = residual.covariance(every, measured.rows)
        to_measured = (
            self._prior.between(derivatives, every, measured.rows) + residuals_with_measured
        )
        noise = np.diag(variances)
        precision = np.linalg.inv(to_measured[measured.rows] + noise)
        # The diagonal of K · precision · Kᵀ, without the other elements of this large matrix.
        explained = np.einsum("ij,ij->i", to_measured @ precision, to_measured)
        # The mean is the model, plus the residuals of the measured candidates, weighted by their
        # covariance: a similar candidate is expected to have a similar discrepancy.
        left = measured.log_costs - costs[measured.rows]
        solved = np.linalg.solve(residuals_with_measured[measured.rows] + noise, left)
        self.mean = rounded(costs + residuals_with_measured @ solved)
        prior_variances = self._prior.variances(derivatives) + residual.variances()
        # A variance can fall below zero by rounding.
        left_variances = np.maximum(prior_variances - explained, 0.0)
        self.variance = rounded(scale * left_variances)
        self._posterior = _Posterior(
            derivatives=derivatives,
            residual=residual,
            to_measured=to_measured,
            precision=precision,
            scale=scale,
        )

    def _extended(self, measured: Measured, moved: Array) -> tuple[PerformanceModel, Array]:
        """The model for all candidates, with the parameters expected from the measured curves."""
        curves = np.arange(self._prior.curves.count)
        local = 3 * len(measured.curves)
        among = self._prior.of_curves(measured.curves, measured.curves)
        # Regression from the parameters of the measured curves to those of all curves: prior mean +
        # covariance with the measured · inverse covariance of the measured · their deviations.
        weights = np.linalg.solve(among, moved[:local])
        parameters = self._prior_mean(curves, measured)
        parameters[: 3 * len(curves)] += self._prior.of_curves(curves, measured.curves) @ weights
        # Extras of families that were not measured stay at their prior mean.
        parameters[3 * len(curves) :] += moved[local:]
        return self._model(np.arange(len(self._prior.sizes)), curves, measured), parameters


def _residual_kernel(errors: ErrorScales, measured: Indices, prior: CostPrior) -> _ResidualKernel:
    """What the errors of a model say. ``measured`` has the candidate of each measurement."""
    curve_of = prior.curves.curve_of
    outlying = list(errors.outliers)
    known = np.unique(curve_of[np.delete(measured, outlying)])
    shares = np.zeros((len(curve_of), len(outlying)))
    for number, curve in enumerate(curve_of[measured[outlying]]):
        shares[:, number] = prior.curves.new_choices(curve, known)[curve_of]
    return _ResidualKernel(
        prior=prior,
        discrepancy=errors.discrepancy,
        shares=shares,
        deviations=np.array(list(errors.outliers.values())),
    )
