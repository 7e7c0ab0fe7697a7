"""The posterior of one cost of every candidate, from few measurements, for very large plans.

The cost is either the time of a micro-batch or the memory. The physical law is fitted to the
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
    """The part of the costs that the law does not describe: misfits, and effects of surprises. A
    technique that is three times as slow as expected says nothing about the others, so a surprise
    gets an effect of its own, shared by candidates that have the same technique."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Posterior:
    """The law linearized at its fit, and the matrices of the regression."""

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

    def with_prior(self, prior: CostPrior) -> CostModel:
        """A model of the same observations; ``learn`` then uses them."""
        model = CostModel(prior)
        model._observations |= self._observations
        return model

    def expect(self, seconds: Mapping[int, float]) -> None:
        """Expect forecast seconds of a sample, by candidate. ``learn`` then uses it."""
        self._prior.expect(seconds)

    def observe(self, index: int, observation: Observation) -> None:
        """Note a measured cost, which replaces an earlier one. ``learn`` then uses it."""
        self._observations[index] = observation

    def learn(self) -> None:
        """Fit the law, and compute the posterior from all observations so far."""
        if not self._observations:
            return
        measured = as_arrays(self._observations, self._prior)
        # Two fits: the residuals of the first one show how large noise and misfit are, and the
        # second one uses these scales.
        first = self._first_fit(measured)
        start = first.best(first.prior_mean)
        errors = errors_of(self._residuals(first, measured, start), self._hyperparameters)
        # Independent errors add up as variances: the stated error of a trial, and the noise between
        # trials. The misfit of the law is correlated between similar candidates.
        variances = measured.stated_variances + errors.noises**2
        beside = _residual_kernel(errors, measured.rows, self._prior)
        misfits = beside.covariance(measured.rows, measured.rows)
        precision = np.linalg.inv(misfits + np.diag(variances))
        moved = replace(first, cost_precision=precision).best(start) - first.prior_mean
        self._infer(measured, moved, variances, beside, errors.posterior_scale)

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
        return np.concatenate([of_curves.ravel(), self._prior.extra_means])

    def _first_fit(self, measured: Measured) -> ParameterFit:
        """The law of the measured candidates and their curves only, to fit with usual errors."""
        kernel = self._prior.misfit_kernel(measured.rows, measured.rows)
        usual = self._hyperparameters.usual_noise
        variances = measured.stated_variances + usual**2
        return ParameterFit(
            law=self._law(measured.rows, measured.curves, measured),
            prior_mean=self._prior_mean(measured.curves, measured),
            prior_precision=np.linalg.inv(self._prior.of_parameters(measured.curves)),
            log_costs=measured.log_costs,
            cost_precision=np.linalg.inv(usual**2 * kernel + np.diag(variances)),
        )

    def _law(self, rows: Indices, curves: Indices, measured: Measured) -> PerformanceModel:
        """The law of some candidates. ``curves`` are theirs, ascending."""
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
            extra_shares=self._prior.extra_shares[rows],
            curves=np.searchsorted(curves, self._prior.curves.curve_of[rows]),
            curve_count=len(curves),
            families=self._prior.families[rows],
            unit=measured.unit,
            branches=branches[rows],
            norm_exponents=exponents[rows],
        )

    def _residuals(self, fit: ParameterFit, measured: Measured, parameters: Array) -> Residuals:
        """The differences between the measurements and the law, linearized at the parameters."""
        jacobian = fit.law.jacobian(parameters)
        from_law = measured.log_costs - fit.law.costs(parameters)
        # Linearized at p, law(prior mean) = law(p) - J (p - prior mean), and the parameters'
        # covariance C becomes J C Jᵀ for the costs.
        return Residuals(
            from_prior=from_law + jacobian @ (parameters - fit.prior_mean),
            from_law=from_law,
            parameter_covariance=jacobian @ self._prior.of_parameters(measured.curves) @ jacobian.T,
            misfit_kernel=self._prior.misfit_kernel(measured.rows, measured.rows),
            known_variances=measured.stated_variances,
            is_on_floor=measured.branches == Branch.HOST_BOUND,
        )

    def _infer(
        self,
        measured: Measured,
        moved: Array,
        variances: Array,
        beside: _ResidualKernel,
        scale: float,
    ) -> None:
        """The posterior of all candidates by Gaussian process regression (Rasmussen and Williams,
        sections 2.2 and 2.7), with the law linearized at the fit, which ``moved`` from the prior
        mean."""
        every = np.arange(len(self._prior.sizes))
        law, parameters = self._extended(measured, moved)
        costs = law.costs(parameters)
        derivatives = law.derivatives(parameters)
        beside_measured = beside.covariance(every, measured.rows)
        to_measured = self._prior.between(derivatives, every, measured.rows) + beside_measured
        noise = np.diag(variances)
        precision = np.linalg.inv(to_measured[measured.rows] + noise)
        # The diagonal of K · precision · Kᵀ, without the other elements of this large matrix.
        explained = np.einsum("ij,ij->i", to_measured @ precision, to_measured)
        # The mean is the law, plus the residuals of the measured candidates, weighted by their
        # covariance: a similar candidate is expected to have a similar misfit.
        left = measured.log_costs - costs[measured.rows]
        solved = np.linalg.solve(beside_measured[measured.rows] + noise, left)
        self.mean = rounded(costs + beside_measured @ solved)
        prior_variances = self._prior.variances(derivatives) + beside.variances()
        # A variance can fall below zero by rounding.
        left_variances = np.maximum(prior_variances - explained, 0.0)
        self.variance = rounded(scale * left_variances)
        self._posterior = _Posterior(
            derivatives=derivatives,
            residual=beside,
            to_measured=to_measured,
            precision=precision,
            scale=scale,
        )

    def _extended(self, measured: Measured, moved: Array) -> tuple[PerformanceModel, Array]:
        """The law for all candidates, with the parameters expected from the measured curves."""
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
        return self._law(np.arange(len(self._prior.sizes)), curves, measured), parameters


def _residual_kernel(errors: ErrorScales, measured: Indices, prior: CostPrior) -> _ResidualKernel:
    """What the errors of a model say. ``measured`` has the candidate of each measurement."""
    curve_of = prior.curves.curve_of
    surprising = list(errors.surprises)
    known = np.unique(curve_of[np.delete(measured, surprising)])
    shares = np.zeros((len(curve_of), len(surprising)))
    for number, curve in enumerate(curve_of[measured[surprising]]):
        shares[:, number] = prior.curves.new_choices(curve, known)[curve_of]
    return _ResidualKernel(
        prior=prior,
        misfit=errors.misfit,
        shares=shares,
        deviations=np.array(list(errors.surprises.values())),
    )
