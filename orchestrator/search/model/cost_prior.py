"""The prior covariance of a cost between candidates, from the law linearized at its fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, Numbering
from orchestrator.search.model.candidates import Candidate, OptimizerFamily
from orchestrator.search.model.curve_prior import CurvePrior, Part, PriorScales
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.performance_model import Derivatives, ParameterLayout

Kernel = Callable[[Indices, Indices], Array]
"""From the indices of two sets of curves to a matrix with a value for each pair."""


class CostPrior:
    """The candidates of the plan as arrays, and the covariance of their costs."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        priors: TechniquePriors,
        scales: PriorScales,
        *,
        is_time: bool,
    ) -> None:
        part = Part.TIME if is_time else Part.MEMORY_BASE
        self.curves = CurvePrior(candidates, priors, scales, part)
        """The prior of floors and bases."""
        self._slopes = self.curves
        if not is_time:
            self._slopes = CurvePrior(candidates, priors, scales, Part.MEMORY_SLOPE)
        self.is_time = is_time
        self.sizes = np.array([candidate.micro_batch for candidate in candidates], float)
        self._octaves = np.log2(self.sizes)
        families: Numbering[OptimizerFamily] = Numbering()
        self._families = np.array(
            [_family(candidate, families, is_time=is_time) for candidate in candidates], int
        )
        self.family_count = len(families)
        self.extra_means, self._extra_deviations = _extras(
            list(families), self.curves, is_time=is_time
        )
        self._shares = extra_shares(candidates, is_time=is_time)
        self._correlation = 0.0
        self._common = np.full(3, scales.common**2)
        """Variances of the parts of floor, base and slope that all curves share, shape (3,)."""
        self._common_covariance = 0.0
        """Covariance of the shared parts of base and slope."""
        if is_time:
            # Base and slope are both times of the GPU, so a technique affects both in a similar
            # way.
            self._correlation = scales.base_slope_correlation
            self._common[0] = scales.common_floor**2
            # The ratio of base to slope has a known deviation. The covariance follows from
            # Var(base - slope) = Var(base) + Var(slope) - 2 Cov(base, slope), of logarithms.
            self._common_covariance = scales.common**2 - scales.common_base_to_slope**2 / 2

    def base_effects(self, curves: Indices) -> Array:
        """Expected logarithm of the effect of curves' techniques on the base, shape (curves,)."""
        return self.curves.log_effects[curves]

    def slope_effects(self, curves: Indices) -> Array:
        """The same of the slope."""
        return self._slopes.log_effects[curves]

    def layout(self, rows: Indices, curves: Indices, prior_covariance: Array) -> ParameterLayout:
        """The parameters of the law for some candidates. ``curves`` are their curves, ascending."""
        return ParameterLayout(
            sizes=self.sizes[rows],
            extra_shares=self._shares[rows],
            curves=np.searchsorted(curves, self.curves.curve_of[rows]),
            families=self._families[rows],
            curve_count=len(curves),
            family_count=self.family_count,
            prior_covariance=prior_covariance,
        )

    def of_parameters(self, curves: Indices) -> Array:
        """Prior covariance of all parameters of the law for some curves.

        The extras of optimizers are independent of the curves and of each other.
        """
        of_curves = self.of_curves(curves, curves)
        count = len(of_curves)
        covariance = np.zeros((count + self.family_count, count + self.family_count))
        covariance[:count, :count] = of_curves
        covariance[count:, count:] = np.diag(self._extra_deviations**2)
        return covariance

    def of_curves(self, rows: Indices, columns: Indices) -> Array:
        """Prior covariance of floors, bases and slopes, shape (3 × rows, 3 × columns).

        A floor is independent of bases and slopes.
        """
        between = self.curves.covariance(rows, columns)
        floor, base = between + self._common[0], between + self._common[1]
        slope = self._slopes.covariance(rows, columns) + self._common[2]
        correlated = self._correlation * between + self._common_covariance
        none = np.zeros_like(between)
        return np.block([[floor, none, none], [none, base, correlated], [none, correlated, slope]])

    def between(self, derivatives: Derivatives, rows: Indices, columns: Indices) -> Array:
        """Prior covariance of what the law says of candidates' costs, shape (rows, columns).

        ``derivatives`` are those of all candidates.
        """
        # Linearized, Cov(cost a, cost b) is the sum over all pairs of parameters of derivative ·
        # derivative · covariance. Floor, base and slope of the same kind come first.
        of_curves = self._by_curve(rows, columns, self.curves.covariance)
        of_slopes = of_curves
        if self._slopes is not self.curves:
            of_slopes = self._by_curve(rows, columns, self._slopes.covariance)
        covariance = np.zeros_like(of_curves)
        derivatives_of = (derivatives.floor, derivatives.base, derivatives.slope)
        kernels = (of_curves, of_curves, of_slopes)
        for derivative, kernel, common in zip(derivatives_of, kernels, self._common, strict=True):
            covariance += (kernel + common) * np.outer(derivative[rows], derivative[columns])
        # Then the pairs of a base and a slope, in both orders.
        crossed = np.outer(derivatives.base[rows], derivatives.slope[columns])
        crossed += np.outer(derivatives.slope[rows], derivatives.base[columns])
        covariance += (self._correlation * of_curves + self._common_covariance) * crossed
        # Then the extra of an optimizer, which candidates with the same optimizer share.
        is_same_family = self._families[rows][:, None] == self._families[columns]
        extras = np.outer(derivatives.extra[rows], derivatives.extra[columns]) * is_same_family
        # The index -1 of the reference optimizer selects the appended zero.
        deviations = np.append(self._extra_deviations, 0.0)[self._families[rows]]
        covariance += (deviations**2)[:, None] * extras
        return np.asarray(covariance)

    def variances(self, derivatives: Derivatives) -> Array:
        """The diagonal of ``between`` for all candidates, shape (candidates,).

        The whole matrix would be too large.
        """
        of_curves = self.curves.variances()[self.curves.curve_of]
        variances = (of_curves + self._common[0]) * derivatives.floor**2
        variances += (of_curves + self._common[1]) * derivatives.base**2
        of_slopes = self._slopes.variances()[self.curves.curve_of]
        variances += (of_slopes + self._common[2]) * derivatives.slope**2
        correlated = self._correlation * of_curves + self._common_covariance
        variances += 2 * correlated * derivatives.base * derivatives.slope
        deviations = np.append(self._extra_deviations, 0.0)[self._families]
        return np.asarray(variances + (deviations * derivatives.extra) ** 2)

    def misfit_kernel(self, rows: Indices, columns: Indices) -> Array:
        """Correlation of the misfits, the distances from the law, shape (rows, columns).

        A squared-exponential kernel over the logarithm (base 2) of the micro-batch, times a factor
        for each choice in which two curves differ.
        """
        differing = self._by_curve(rows, columns, self.curves.differing)
        octaves = self._octaves[rows][:, None] - self._octaves[columns]
        of_curves = self.curves.scales.misfit_per_choice**differing
        return np.asarray(of_curves * np.exp(-(octaves**2) / 2))

    def _by_curve(self, rows: Indices, columns: Indices, kernel: Kernel) -> Array:
        """A kernel of curves, expanded to candidates; computed once for each pair of curves."""
        # Candidates of the same curve have equal values, so each pair of curves is computed once.
        curves, row_numbers = np.unique(self.curves.curve_of[rows], return_inverse=True)
        others, column_numbers = np.unique(self.curves.curve_of[columns], return_inverse=True)
        of_curves = kernel(curves, others)
        return np.asarray(of_curves[row_numbers][:, column_numbers])


def extra_shares(candidates: Sequence[Candidate], *, is_time: bool) -> Array:
    """The share of an optimizer's extra that one micro-batch pays, shape (candidates,).

    The passes of a step share the optimizer's time. Memory of its states is always paid in full.
    """
    if not is_time:
        return np.ones(len(candidates))
    return 1 / np.array([candidate.accumulation for candidate in candidates], float)


def _extras(
    families: Sequence[OptimizerFamily], curves: CurvePrior, *, is_time: bool
) -> tuple[Array, Array]:
    """Expected extra of each family and its deviation, as shares of the smallest measured cost."""
    means = np.zeros(len(families))
    scales = curves.scales
    deviations = np.full(len(families), scales.extra)
    if not is_time:
        return means, deviations
    for number, family in enumerate(families):
        effect = curves.effect_of_optimizer(family)
        if effect is not None:
            # A factor of the time was recorded; the extra is what it adds to a time of 1.
            means[number] = math.expm1(effect.log_time)
            deviations[number] = min(scales.extra, max(scales.least_extra, effect.deviation))
    return means, deviations


def _family(candidate: Candidate, families: Numbering[OptimizerFamily], *, is_time: bool) -> int:
    """Index of the optimizer family; -1 for the plan's first optimizer, which has no extra."""
    if candidate.has_reference_optimizer:
        return -1
    if is_time:
        return families[candidate.optimizer_family]
    return families[candidate.optimizer_family.of_memory]
