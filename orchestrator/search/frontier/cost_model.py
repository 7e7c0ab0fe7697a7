"""One cost of every candidate: a physical law and a Gaussian process, learned from measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.search.frontier.similarity import (
    curve_covariance,
    misfit_kernel,
    prior_covariance,
)
from orchestrator.search.model.arrays import Array, Indices, Numbering, rounded
from orchestrator.search.model.candidates import Candidate, Curve, OptimizerFamily
from orchestrator.search.model.cost_prior import extra_shares
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.noise_scales import Residuals, most_likely_scales
from orchestrator.search.model.observations import Observation
from orchestrator.search.model.parameter_fit import ParameterFit
from orchestrator.search.model.performance_model import Branch, ParameterLayout, PerformanceModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """The logarithm of every candidate's cost as a normal distribution.

    Arrays have the shape (candidates,).
    """

    mean: Array
    deviation: Array
    """Standard deviation of what a trial would measure: uncertainty of the cost, and noise of the
    measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Observations:
    """All observations as arrays of shape (measured,)."""

    measured: Indices
    costs: Array
    stated_variances: Array
    """Noise variances of the costs' logarithms, as the trials state them."""

    def among(self, matrix: Array) -> Array:
        """The rows and columns of the measured candidates."""
        return np.asarray(matrix[np.ix_(self.measured, self.measured)])


class CostModel:
    """Posterior of one cost: bytes, or seconds of a micro-batch.

    The law (``cost_law``) has few parameters for many candidates, with priors that curves share the
    more, the more similar they are. What the law leaves unexplained is a Gaussian process: near
    micro-batches with equal techniques deviate together. With every observation the scales of
    misfit and noise are selected (``noise_scales``), then the parameters are fitted
    (``parameter_fit``), then the posterior follows from the law linearized at the fit.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        is_time: bool,
        hyperparameters: Hyperparameters | None = None,
    ) -> None:
        self._hyperparameters = hyperparameters or Hyperparameters()
        self._is_time = is_time
        self._layout = layout_of(candidates, self._hyperparameters, is_time=is_time)
        # Computed once: the prior does not depend on measurements.
        self._prior_precision = np.linalg.inv(self._layout.prior_covariance)
        self._kernel = misfit_kernel(candidates, self._hyperparameters.correlation_per_choice)
        self._observations: dict[int, Observation] = {}
        self._parameters: Array | None = None
        """The last fit, where the next one starts."""
        self.posterior: Posterior | None = None
        """From everything observed so far; None before the first observation."""
        self.covariance: Array = np.zeros((0, 0))
        """Of the logarithms of the costs themselves, without noise; shape (candidates,
        candidates)."""

    def observe(self, index: int, observation: Observation) -> None:
        """Learn the measured cost of a candidate, in place of an earlier one."""
        self._observations[index] = observation
        self._learn()

    def _learn(self) -> None:
        observations = self._arrays()
        law = self._law(observations)
        measured = observations.measured
        # Costs of a sample, so that sizes of the micro-batch compare.
        prior_mean = law.prior_mean(observations.costs / self._layout.sizes[measured])
        # The last fit is near the next one.
        start = prior_mean
        if self._parameters is not None:
            start = self._parameters
        # Scales of misfit and noise first, then the parameters, then the posterior.
        misfit, variances = self._misfit(law, start, prior_mean, observations)
        fit = ParameterFit(
            law=law,
            prior_mean=prior_mean,
            prior_precision=self._prior_precision,
            measured=measured,
            log_costs=np.log(observations.costs),
            cost_precision=np.linalg.inv(observations.among(misfit) + np.diag(variances)),
        )
        self._parameters = fit.best(start)
        self._infer(law, observations, misfit, variances)

    def _arrays(self) -> _Observations:
        costs = []
        relative_errors = []
        for observation in self._observations.values():
            costs.append(observation.cost)
            relative_errors.append(observation.relative_error)
        # Half a 95 % interval is about two standard deviations. A small relative error is the error
        # of the logarithm.
        deviations = np.array(relative_errors) / 2
        return _Observations(
            measured=np.array(list(self._observations), int),
            costs=np.array(costs),
            stated_variances=deviations**2,
        )

    def _law(self, observations: _Observations) -> PerformanceModel:
        # Unmeasured candidates may be on either branch.
        branches = np.full(len(self._layout.sizes), Branch.UNKNOWN, int)
        for index, observation in self._observations.items():
            branches[index] = observation.branch
        return PerformanceModel(
            layout=self._layout,
            hyperparameters=self._hyperparameters,
            unit=float(observations.costs.min()),
            branches=branches,
        )

    def _misfit(
        self,
        law: PerformanceModel,
        parameters: Array,
        prior_mean: Array,
        observations: _Observations,
    ) -> tuple[Array, Array]:
        """Covariance of the misfits of all candidates, and noise variances of the measured ones."""
        measured = observations.measured
        # The law linearized at the parameters: costs, and their derivatives.
        costs = law.costs(parameters)
        jacobian = law.jacobian(parameters)[measured]
        extra_kernel = self._extra_kernel(law, parameters, costs)
        # The law's costs are logarithms, so a difference is a relative error.
        from_law = np.log(observations.costs) - costs[measured]
        residuals = Residuals(
            # The law at the prior mean, linearized at the parameters.
            from_prior=from_law + jacobian @ (parameters - prior_mean),
            from_law=from_law,
            parameter_covariance=self._prior_of_costs(jacobian),
            misfit_kernel=observations.among(self._kernel),
            extra_kernel=observations.among(extra_kernel),
            known_variances=observations.stated_variances,
            is_on_floor=law.branches[measured] == Branch.HOST_BOUND,
            has_outliers=self._is_time,
        )
        scales = most_likely_scales(residuals, self._hyperparameters)
        # A trial's own stated error, and the scatter of trials beyond it, are independent.
        variances = observations.stated_variances + scales.noises**2
        return scales.covariance(self._kernel, extra_kernel), variances

    def _extra_kernel(self, law: PerformanceModel, parameters: Array, costs: Array) -> Array:
        """Covariance of misfits if extras are off by their whole size.

        Shape (candidates, candidates).

        In the logarithm of a cost, an extra that is off by its size weighs its share of the cost.
        Extras of different optimizer families say nothing about each other.
        """
        # The cost is c; without the extra it is c', both as logarithms: the share is 1 - c' / c.
        extra_share = 1 - np.exp(law.costs_without_extra(parameters) - costs)
        families = self._layout.families
        same_family = np.equal.outer(families, families)
        return np.asarray(np.outer(extra_share, extra_share) * self._kernel * same_family)

    def _infer(
        self, law: PerformanceModel, observations: _Observations, misfit: Array, variances: Array
    ) -> None:
        """Posterior and covariance at the fitted parameters.

        Gaussian process regression (Rasmussen and Williams, section 2.2) with a linear part
        (section 2.7): the law, linearized. The condition that the branch which was not measured is
        not higher moves only the mean, because it is not a measurement.
        """
        assert self._parameters is not None
        measured = observations.measured
        # The law's own uncertainty, and the misfit around it.
        prior = self._prior_of_costs(law.jacobian(self._parameters)) + misfit
        covariance = observations.among(prior) + np.diag(variances)
        self.covariance = prior - prior[measured].T @ np.linalg.solve(covariance, prior[measured])
        # The diagonal can fall below zero by rounding.
        cost_variance = np.maximum(np.diag(self.covariance), 0.0)
        deviation = np.sqrt(cost_variance + self._trial_noise(law, measured, variances))
        mean = self._mean(law.costs(self._parameters), observations, misfit, variances)
        self.posterior = Posterior(mean=rounded(mean), deviation=rounded(deviation))

    def _mean(
        self, costs: Array, observations: _Observations, misfit: Array, variances: Array
    ) -> Array:
        """The fitted law's costs, plus the misfit to expect from the residuals of the measured."""
        measured = observations.measured
        # The conditional mean of a Gaussian process (Rasmussen and Williams, equation 2.25): the
        # misfits of the measured candidates, weighed by their covariance with each candidate.
        residuals = np.log(observations.costs) - costs[measured]
        covariance = observations.among(misfit) + np.diag(variances)
        return np.asarray(costs + misfit[:, measured] @ np.linalg.solve(covariance, residuals))

    def _prior_of_costs(self, jacobian: Array) -> Array:
        """Covariance of costs that follows from the prior of the parameters."""
        return np.asarray(jacobian @ self._layout.prior_covariance @ jacobian.T)

    def _trial_noise(self, law: PerformanceModel, measured: Indices, variances: Array) -> Array:
        """Noise variance to expect of a trial of each candidate, shape (candidates,).

        The mean over the measured candidates, weighted by similarity. Those on the other branch
        hardly count, because a host's pace varies more than a GPU's.
        """
        assert self._parameters is not None
        on_floor = law.is_on_floor(self._parameters)
        # Whether candidate and measurement are surely on different branches.
        seen = law.branches[measured]
        is_other = (seen != Branch.UNKNOWN) & (on_floor[:, None] != (seen == Branch.HOST_BOUND))
        weight = np.where(is_other, self._hyperparameters.other_branch_weight, 1.0)
        # A weighted mean over the measured candidates.
        similarity = self._kernel[:, measured] * weight
        return np.asarray(similarity @ variances / similarity.sum(axis=1))


def layout_of(
    candidates: Sequence[Candidate], hyperparameters: Hyperparameters, *, is_time: bool
) -> ParameterLayout:
    """The layout of the parameters for a plan."""
    # Give indices to the curves and the optimizer families, in the order of the plan.
    curves: Numbering[Curve] = Numbering()
    families: Numbering[OptimizerFamily] = Numbering()
    curve_numbers = [curves[candidate.reference_curve] for candidate in candidates]
    family_numbers = [_family_number(candidate, families) for candidate in candidates]
    of_curves = curve_covariance(list(curves), hyperparameters)
    return ParameterLayout(
        sizes=np.array([candidate.micro_batch for candidate in candidates], float),
        extra_shares=extra_shares(candidates, is_time=is_time),
        curves=np.array(curve_numbers, int),
        families=np.array(family_numbers, int),
        curve_count=len(curves),
        family_count=len(families),
        prior_covariance=prior_covariance(
            of_curves, len(families), hyperparameters, is_time=is_time
        ),
    )


def _family_number(candidate: Candidate, families: Numbering[OptimizerFamily]) -> int:
    if candidate.has_reference_optimizer:
        return -1
    return families[candidate.optimizer_family]
