"""The model of a cost: how memory, or the time of a micro-batch, depends on a candidate.

    cost = max(floor, base + slope × micro-batch) + overhead

Memory: the floor is the optimizer's step, the line is weights and activations. Time: the floor is
the host, which launches kernels at its own pace, and the line is the GPU. The overhead is the
difference between an optimizer and the plan's first one: bytes of states, or seconds of its step.
"""

import enum
from dataclasses import dataclass

import numpy as np

from orchestrator.search.model.arrays import Array, Indices

_BRANCH_SLACK = 0.05
"""How far a branch of the model may exceed the branch that was seen: one standard deviation, a
logarithm."""
_FLOOR_CORNER = 0.1
"""How far the floor may exceed a line that was seen, because real curves bend near the corner."""
_MIN_EXTRA_FACTOR = 0.02
"""An overhead below zero leaves at least this factor of a cost. Keeps the logarithm defined."""


class Branch(enum.IntEnum):
    """Which side of the maximum decides a measured cost; the values are signs in formulas."""

    HOST_BOUND = 1
    """The floor decides: the line is not above it."""
    UNKNOWN = 0
    """Unknown: the cost is the larger of the two."""
    GPU_BOUND = -1
    """The line decides: the floor is not above it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerformanceModel:
    """The model for some candidates, with the unit and the branches of their measurements. All
    costs are logarithms; arrays have the shape (candidates,). The parameters are one vector: the
    logarithms of a floor, a base and a slope for each curve, then an overhead for each optimizer
    family."""

    sizes: Array
    """Micro-batches."""
    overhead_shares: Array
    """Share of an overhead that one micro-batch pays."""
    curves: Indices
    """Index of each candidate's curve."""
    curve_count: int
    families: Indices
    """Index of each candidate's optimizer family; -1 for the reference optimizer without
    overhead."""
    unit: float
    """Bytes or seconds that an overhead of 1 stands for: the smallest measured cost."""
    branches: Indices
    """``Branch`` of each candidate; UNKNOWN if nothing was measured."""
    norm_exponents: Array
    """Exponent of the norm that replaces the maximum. The mean of the maximum of two uncertain
    costs is above both (Clark, 1961). So it is smaller where the floor is uncertain: a lower floor
    gains little where the line is close to it."""

    def costs(self, parameters: Array) -> Array:
        """Each candidate's cost, shape (candidates,)."""
        without_overhead = self._costs_without_overhead(parameters)
        # log(m + x) = log m + log(1 + x / m), where x is the overhead.
        return without_overhead + np.log(self._overhead_factor(parameters, without_overhead))

    def jacobian(self, parameters: Array) -> Array:
        """Derivatives of the costs by the parameters, shape (candidates, parameters)."""
        derivatives = self.derivatives(parameters)
        jacobian = self._by_parameter(derivatives[:3], len(parameters))
        # An overhead changes only the costs of its own optimizer family.
        rows = np.flatnonzero(self.families >= 0)
        jacobian[rows, 3 * self.curve_count + self.families[rows]] = derivatives[3, rows]
        return jacobian

    def derivatives(self, parameters: Array) -> Array:
        """Derivatives of each cost by the parameters of its own curve and family. By floor, base,
        slope and overhead, shape (4, candidates). The reference optimizer has no overhead, and the
        derivative 0."""
        without_overhead = self._costs_without_overhead(parameters)
        _, line, shares = self._branches(parameters)
        # The derivative of the p-norm by the logarithm of the line is (line / norm)^p.
        line_share = np.exp(self.norm_exponents * (line - without_overhead))
        line_share = np.where(self.branches == Branch.HOST_BOUND, 0.0, line_share)
        of_overhead = (self.families >= 0) * self._overhead_scale(without_overhead)
        # The costs are log(m + x). By the chain rule, derivatives of log m are divided by the
        # factor (m + x) / m.
        factor = self._overhead_factor(parameters, without_overhead)
        return np.asarray(np.array([1 - line_share, *(line_share * shares), of_overhead]) / factor)

    def branch_violations(self, parameters: Array) -> Array:
        """By how many deviations the other branch exceeds the measured one, shape (candidates,)."""
        return np.asarray(np.maximum(self._branch_excess(parameters), 0.0) / _BRANCH_SLACK)

    def branch_jacobian(self, parameters: Array) -> Array:
        """Derivatives of the violations by the parameters, shape (candidates, parameters)."""
        _, _, shares = self._branches(parameters)
        is_violated = self._branch_excess(parameters) > 0
        sign = is_violated * self.branches / _BRANCH_SLACK
        return self._by_parameter(np.array([-sign, *(sign * shares)]), len(parameters))

    def _branches(self, parameters: Array) -> tuple[Array, Array, Array]:
        """Each candidate's floor and line, and the shares of base and slope in the line, (2,
        candidates)."""
        of_curves = parameters[: 3 * self.curve_count].reshape(3, self.curve_count)
        floor, base, slope = of_curves[:, self.curves]
        terms = np.array([base, slope + np.log(self.sizes)])
        line = np.logaddexp(*terms)
        return floor, line, np.exp(terms - line)

    def _costs_without_overhead(self, parameters: Array) -> Array:
        """The floor or the line where the candidate was measured on it, else their maximum: with
        few measurements, a fit could otherwise put the floor through a measurement on the line."""
        floor, line, _ = self._branches(parameters)
        # The p-norm replaces the maximum, because it has derivatives everywhere:
        # log max(a, b) ≈ log(a^p + b^p) / p.
        p = self.norm_exponents
        costs = np.logaddexp(p * floor, p * line) / p
        costs = np.where(self.branches == Branch.HOST_BOUND, floor, costs)
        return np.where(self.branches == Branch.GPU_BOUND, line, costs)

    def _overhead_scale(self, without_overhead: Array) -> Array:
        """What an overhead of 1 adds to each cost, relative to the cost without it."""
        return np.asarray(self.unit * self.overhead_shares * np.exp(-without_overhead))

    def _overhead_factor(self, parameters: Array, without_overhead: Array) -> Array:
        """The cost with the overhead divided by the cost without it."""
        # The index -1 of the reference optimizer selects the appended zero.
        overheads = np.append(parameters[3 * self.curve_count :], 0.0)[self.families]
        factor = 1 + self._overhead_scale(without_overhead) * overheads
        return np.asarray(np.maximum(factor, _MIN_EXTRA_FACTOR))

    def _branch_excess(self, parameters: Array) -> Array:
        """By how much the other branch is above the measured one; 0 for an unknown branch."""
        floor, line, _ = self._branches(parameters)
        corner = _FLOOR_CORNER * (self.branches == Branch.GPU_BOUND)
        return np.asarray(self.branches * (line - floor) - corner)

    def _by_parameter(self, by_part: Array, parameter_count: int) -> Array:
        """Derivatives of shape (3, candidates) in the columns of each candidate's own curve."""
        rows = np.arange(len(self.curves))
        jacobian = np.zeros((len(rows), parameter_count))
        for part, derivatives in enumerate(by_part):
            jacobian[rows, part * self.curve_count + self.curves] = derivatives
        return jacobian
