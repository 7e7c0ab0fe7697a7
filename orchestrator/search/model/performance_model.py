"""The physical law of a cost: how memory, or the time of a micro-batch, depends on a candidate.

    cost = max(floor, base + slope × micro-batch) + extra

Memory: the floor is the optimizer's step, the line is weights and activations. Time: the floor is
the host, which launches kernels at its own pace, and the line is the GPU. The extra is the
difference between an optimizer and the plan's first one: bytes of states, or seconds of its step.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices
from orchestrator.search.model.hyperparameters import Hyperparameters


class Branch(enum.IntEnum):
    """Which side of the maximum decides a measured cost.

    The values are used as signs in formulas.
    """

    HOST_BOUND = 1
    """The floor decides: the line is not above it."""
    UNKNOWN = 0
    """Unknown: the cost is the larger of the two."""
    GPU_BOUND = -1
    """The line decides: the floor is not above it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterLayout:
    """Which parameters the cost of each candidate depends on; arrays of shape (candidates,).

    The parameters are one vector: the logarithms of a floor, a base and a slope for each curve,
    then an extra for each optimizer family. Curves do not depend on the optimizer.
    """

    sizes: Array
    """Micro-batches."""
    extra_shares: Array
    """Share of an extra that one micro-batch pays."""
    curves: Indices
    """Index of each candidate's curve."""
    families: Indices
    """Index of each candidate's optimizer family; -1 for the reference optimizer without extra."""
    curve_count: int
    family_count: int
    prior_covariance: Array
    """Prior covariance of the parameters, shape (parameters, parameters)."""

    @property
    def floors(self) -> slice:
        """The positions of the floors in the vector of parameters."""
        return slice(0, self.curve_count)

    @property
    def bases(self) -> slice:
        """The positions of the bases."""
        return slice(self.curve_count, 2 * self.curve_count)

    @property
    def slopes(self) -> slice:
        """The positions of the slopes."""
        return slice(2 * self.curve_count, 3 * self.curve_count)

    @property
    def extras(self) -> slice:
        """The positions of the extras."""
        return slice(3 * self.curve_count, 3 * self.curve_count + self.family_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Derivatives:
    """Derivatives of costs, each by one parameter; arrays of shape (candidates,)."""

    floor: Array
    base: Array
    slope: Array
    extra: Array
    """0 for the reference optimizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformanceModel:
    """The law for a plan, with the unit and the branches of its measurements.

    All costs are logarithms.
    """

    layout: ParameterLayout
    hyperparameters: Hyperparameters
    unit: float
    """Bytes or seconds that an extra of 1 stands for: the smallest measured cost."""
    branches: Indices
    """``Branch`` of each candidate, shape (candidates,); UNKNOWN if nothing was measured."""
    norm_exponents: Array
    """Exponent of the norm that replaces the maximum, shape (candidates,).

    The mean of the maximum of two uncertain costs is above both (Clark, 1961). So it is smaller
    where the floor is uncertain: a lower floor gains little where the line is close to it."""

    def terms(self, parameters: Array) -> tuple[Array, Array, Array]:
        """Logarithms of each candidate's floor, base, and slope × micro-batch."""
        curves = self.layout.curves
        # Each candidate reads the parameters of its own curve.
        floor = parameters[self.layout.floors][curves]
        base = parameters[self.layout.bases][curves]
        slope = parameters[self.layout.slopes][curves]
        return floor, base, slope + np.log(self.layout.sizes)

    def costs_without_extra(self, parameters: Array) -> Array:
        """The floor or the line where the candidate was measured on it, else their maximum.

        So a measurement on the line does not affect the floor. With few measurements, a fit could
        otherwise put the floor through it, and rule out all smaller micro-batches.
        """
        floor, base, slope_term = self.terms(parameters)
        line = np.logaddexp(base, slope_term)
        # The p-norm replaces the maximum, because it has derivatives everywhere:
        # log max(a, b) ≈ log(a^p + b^p) / p.
        p = self.norm_exponents
        costs = np.logaddexp(p * floor, p * line) / p
        costs = np.where(self.branches == Branch.HOST_BOUND, floor, costs)
        return np.where(self.branches == Branch.GPU_BOUND, line, costs)

    def costs(self, parameters: Array) -> Array:
        """Each candidate's cost, shape (candidates,)."""
        without_extra = self.costs_without_extra(parameters)
        # log(m + x) = log m + log(1 + x / m), where x is the extra.
        return without_extra + np.log(self._extra_factor(parameters, without_extra))

    def jacobian(self, parameters: Array) -> Array:
        """Derivatives of the costs by the parameters, shape (candidates, parameters)."""
        derivatives = self.derivatives(parameters)
        jacobian = self._by_curve(
            np.arange(len(derivatives.floor)),
            floor=derivatives.floor,
            base=derivatives.base,
            slope=derivatives.slope,
        )
        # An extra changes only the costs of its own optimizer family.
        rows = np.flatnonzero(self.layout.families >= 0)
        columns = self.layout.extras.start + self.layout.families[rows]
        jacobian[rows, columns] = derivatives.extra[rows]
        return jacobian

    def derivatives(self, parameters: Array) -> Derivatives:
        """Derivatives of each candidate's cost by the parameters of its own curve and family."""
        # The costs are log(m + x). By the chain rule, derivatives of log m are divided by the
        # factor (m + x) / m.
        without_extra = self.costs_without_extra(parameters)
        factor = self._extra_factor(parameters, without_extra)
        line_share, base_share, slope_share = self._shares(parameters, without_extra)
        has_extra = self.layout.families >= 0
        return Derivatives(
            floor=(1 - line_share) / factor,
            base=line_share * base_share / factor,
            slope=line_share * slope_share / factor,
            extra=has_extra * self._extra_scale(without_extra) / factor,
        )

    def _by_curve(self, rows: Indices, *, floor: Array, base: Array, slope: Array) -> Array:
        """Derivatives by floor, base and slope of the rows' curves, shape (rows, parameters)."""
        layout = self.layout
        derivatives = np.zeros((len(rows), layout.extras.stop))
        numbers = np.arange(len(rows))
        curves = layout.curves[rows]
        derivatives[numbers, curves] = floor
        derivatives[numbers, layout.bases.start + curves] = base
        derivatives[numbers, layout.slopes.start + curves] = slope
        return derivatives

    def _shares(self, parameters: Array, without_extra: Array) -> tuple[Array, Array, Array]:
        """The shares of the line in the maximum, and of base and slope in the line.

        They are also the derivatives of the logarithms.
        """
        _, base, slope_term = self.terms(parameters)
        line = np.logaddexp(base, slope_term)
        # The derivative of the p-norm by the logarithm of the line is (line / norm)^p.
        p = self.norm_exponents
        line_share = np.exp(p * (line - without_extra))
        seen_on_floor = self.branches == Branch.HOST_BOUND
        return (
            np.where(seen_on_floor, 0.0, line_share),
            np.exp(base - line),
            np.exp(slope_term - line),
        )

    def _extra_scale(self, without_extra: Array) -> Array:
        """What an extra of 1 adds to each cost, relative to the cost without it."""
        return np.asarray(self.unit * self.layout.extra_shares * np.exp(-without_extra))

    def _extra_factor(self, parameters: Array, without_extra: Array) -> Array:
        """The cost with the extra divided by the cost without it."""
        # The index -1 of the reference optimizer selects the appended zero.
        extras = np.append(parameters[self.layout.extras], 0.0)[self.layout.families]
        factor = 1 + self._extra_scale(without_extra) * extras
        return np.asarray(np.maximum(factor, self.hyperparameters.min_extra_factor))

    def branch_violations(self, parameters: Array) -> Array:
        """By how many deviations the parameters contradict a measured branch.

        A branch is contradicted if the other one is higher. The shape is (violations,), in the
        order of ``_violated``.
        """
        excess = self._branch_excess(parameters)
        violated = self._violated(excess)
        return np.asarray(excess[violated] / self.hyperparameters.branch_slack)

    def branch_jacobian(self, parameters: Array) -> Array:
        """Derivatives of the violations by the parameters, shape (violations, parameters)."""
        violated = self._violated(self._branch_excess(parameters))
        _, base, slope_term = self.terms(parameters)
        # log(base + slope × size) has the derivatives exp(term - line) by its two terms.
        line = np.logaddexp(base, slope_term)
        sign = self.branches[violated] / self.hyperparameters.branch_slack
        return self._by_curve(
            violated,
            floor=-sign,
            base=sign * np.exp(base - line)[violated],
            slope=sign * np.exp(slope_term - line)[violated],
        )

    def _branch_excess(self, parameters: Array) -> Array:
        """By how much the other branch is above the measured one; negative if it is below.

        It is line - floor if the floor was measured, and floor - line if the line was. The value of
        ``Branch`` is the sign.
        """
        floor, base, slope_term = self.terms(parameters)
        line = np.logaddexp(base, slope_term)
        # Real curves bend near the corner of floor and line. So a measured line gets an allowance.
        corner = self.hyperparameters.floor_corner * (self.branches == Branch.GPU_BOUND)
        return np.asarray(self.branches * (line - floor) - corner)

    def _violated(self, excess: Array) -> Indices:
        """The candidates whose measured branch the parameters contradict."""
        return np.flatnonzero((self.branches != Branch.UNKNOWN) & (excess > 0))
