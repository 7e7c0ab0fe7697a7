"""Prior means and covariances of the parameters of curves, before any measurement.

A curve is a set of techniques at all micro-batches. The covariance between two curves is a sum of
four kernels: for all curves, for each common technique, for each common pair of techniques, and for
the curve alone (Duvenaud et al., Additive Gaussian Processes, 2011). It is computed only between
all curves and the measured ones, so it is cheap for large plans.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jobs.spec import Choice
from orchestrator.search.model.arrays import Array, Indices, Numbering
from orchestrator.search.model.candidates import OPTIMIZER, Candidate, Curve, OptimizerFamily
from orchestrator.search.model.effects.interactions import Interaction, interactions_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import Effect


@dataclass(frozen=True, kw_only=True, slots=True)
class PriorScales:
    """Standard deviations of logarithms, by replay (``python -m tests.benchmarks.best``)."""

    common: float = 3.0
    """Deviation of the part that all curves share: only the order of magnitude is known."""
    common_floor: float = 0.6
    """Deviation of the shared floor of times: the host's floor is close to the measured times."""
    common_base_to_slope: float = 1.0
    """Deviation of the shared ratio of the base of a time to its slope."""
    pair: float = 0.06
    """Deviation of the effect of a pair of techniques, beyond the effects of each."""
    slope_pair: float = 0.3
    """The same of the memory of a sample. Two techniques often save the same memory."""
    curve: float = 0.02
    """Deviation of the part that belongs to one curve only."""
    base_slope_correlation: float = 0.8
    """Correlation of a technique's effects on the base and on the slope of a time."""
    extra: float = 0.3
    """Deviation of the extra cost of an optimizer, as a share of the smallest measured cost."""
    least_extra: float = 0.03
    """Smallest deviation of such an extra, however well its effect was recorded."""
    misfit_per_choice: float = 0.7
    """Factor on the correlation of two candidates' misfits for each choice in which they differ."""


class Part(enum.Enum):
    """The parameters of curves to which a prior applies."""

    TIME = enum.auto()
    """Floor, base and slope of a time: a technique affects all in a similar way."""
    MEMORY_BASE = enum.auto()
    """The memory that does not depend on the micro-batch: weights and optimizer states."""
    MEMORY_SLOPE = enum.auto()
    """The memory of each sample, the activations."""


class CurvePrior:
    """Prior means and covariances of one part of the parameters of a plan's curves.

    Effects of techniques are relative to the techniques of the plan's first candidate.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        priors: TechniquePriors,
        scales: PriorScales,
        part: Part = Part.TIME,
    ) -> None:
        self.scales = scales
        self._part = part
        self._pair = scales.slope_pair if part is Part.MEMORY_SLOPE else scales.pair
        self._priors = priors
        self._reference = candidates[0].trials[0].choices.get(OPTIMIZER)
        curves: Numbering[Curve] = Numbering()
        self.curve_of = curves.of(_curve_of_part(candidate, part) for candidate in candidates)
        """Index of each candidate's curve, shape (candidates,)."""
        self.count = len(curves)
        listed = [_choices(curve) for curve in curves]
        axes = _varying_axes(listed)
        self._codes = np.zeros((len(listed), len(axes)), int)
        """Index of each curve's value on each axis that varies, shape (curves, axes)."""
        self._kernels: list[Array] = []
        """For each of these axes, the covariance of the effects of its values, (values, values)."""
        self._similarities: list[Array] = []
        """For each of these axes, the correlation of the effects of its values, (values, values).
        """
        self.log_effects = np.zeros(len(listed))
        """Expected logarithm of each curve's parameter, relative to the first curve's. Shape
        (curves,)."""
        for column, axis in enumerate(axes):
            self._add_axis(column, axis, [choices.get(axis) for choices in listed], priors)
        self._interactions: list[Interaction] = []
        if part is Part.TIME:
            self._interactions = interactions_of(axes, self._codes, self._similarities)
        for interaction in self._interactions:
            self.log_effects += interaction.log_effects

    def _add_axis(
        self, column: int, axis: str, values: Sequence[Hashable], priors: TechniquePriors
    ) -> None:
        """Add one axis to codes, kernels and effects. ``values`` has a value per curve."""
        numbers: Numbering[tuple[str, Hashable]] = Numbering()
        distinct: list[Choice] = []
        for curve, value in enumerate(values):
            self._codes[curve, column] = numbers[type(value).__name__, value]
            if len(numbers) > len(distinct):
                distinct.append(value)  # type: ignore[arg-type]
        effects = [priors.between(axis, distinct[0], value) for value in distinct]
        expected = [_of_part(effect, self._part) for effect in effects]
        deviations = np.array([deviation for _, deviation in expected])
        rows = []
        for first in distinct:
            rows.append([priors.correlation(axis, first, second) for second in distinct])
        similarities = np.array(rows)
        self._similarities.append(similarities)
        # Cov(a, b) = correlation · deviation of a · deviation of b.
        self._kernels.append(np.outer(deviations, deviations) * similarities)
        self.log_effects += np.array([mean for mean, _ in expected])[self._codes[:, column]]

    def effect_of_optimizer(self, family: OptimizerFamily) -> Effect | None:
        """What a family's optimizer is expected to do, compared with the plan's first one; None if
        no table says it."""
        for axis, _, value in family.techniques:
            if axis == OPTIMIZER and self._reference is not None and value is not None:
                effect = self._priors.between(axis, self._reference, value)
                return effect if self._priors.has(axis, value) else None
        return None

    def covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance of one parameter between curves, shape (rows, columns), without ``common``."""
        own = np.zeros((len(rows), len(columns)))
        shared = np.zeros((len(rows), len(columns)))
        shared_with_itself = np.zeros((len(rows), len(columns)))
        # One axis at a time: an array of (rows, columns, axes) would be large.
        for axis in range(self._codes.shape[1]):
            left, right = self._codes[rows, axis][:, None], self._codes[columns, axis]
            own += self._kernels[axis][left, right]
            similarities = self._similarities[axis][left, right]
            shared += similarities
            shared_with_itself += similarities**2
        for interaction in self._interactions:
            own += interaction.covariance(rows, columns)
        axes = max(1, self._codes.shape[1])
        # The sum of products over all pairs of axes (Newton and Girard), as a share of all pairs.
        # With n equal values it is n (n - 1) / 2 pairs. Similar values count as equal in part.
        pairs = (shared**2 - shared_with_itself) / max(1, axes * (axes - 1))
        is_same = rows[:, None] == columns
        return np.asarray(own + self._pair**2 * pairs + self.scales.curve**2 * is_same)

    def variances(self) -> Array:
        """Prior variance of one parameter of each curve, shape (curves,), without ``common``."""
        alone = np.zeros(len(self._codes))
        for axis, kernel in enumerate(self._kernels):
            alone += np.diag(kernel)[self._codes[:, axis]]
        for interaction in self._interactions:
            alone += interaction.variances
        # A curve has all pairs of axes in common with itself, if there are any.
        pairs = float(self._codes.shape[1] > 1)
        return np.asarray(alone + self._pair**2 * pairs + self.scales.curve**2)

    def new_choices(self, curve: int, known: Indices) -> Array:
        """How much of what is new in a curve each curve has, from 0 to 1, shape (curves,).

        New are the choices that no known curve has. If there are none, the combination is new.
        """
        is_new = ~(self._codes[known] == self._codes[curve]).any(axis=0)
        if not is_new.any():
            return np.asarray(np.arange(self.count) == curve, float)
        equal = self._codes[:, is_new] == self._codes[curve, is_new]
        return np.asarray(equal.mean(axis=1))

    def differing(self, rows: Indices, columns: Indices) -> Array:
        """Number of axes on which two curves differ, shape (rows, columns)."""
        differing = np.zeros((len(rows), len(columns)))
        for axis in range(self._codes.shape[1]):
            differing += self._codes[rows, axis][:, None] != self._codes[columns, axis]
        return differing


def _curve_of_part(candidate: Candidate, part: Part) -> Curve:
    if part is Part.TIME:
        return candidate.reference_curve
    return candidate.reference_curve.of_memory


def _of_part(effect: Effect, part: Part) -> tuple[float, float]:
    """Mean and deviation of the logarithm of a technique's effect on one part."""
    if part is Part.TIME:
        return effect.log_time, effect.deviation
    if part is Part.MEMORY_BASE:
        return 0.0, effect.memory_deviation
    return effect.of_sample()


def _choices(curve: Curve) -> Mapping[str, Hashable]:
    """Axis -> value; "" -> what is constant along the curve."""
    choices: dict[str, Hashable] = {"": curve.regime}
    for axis, _, value in curve.techniques:
        choices[axis] = value
    return choices


def _varying_axes(curves: Sequence[Mapping[str, Hashable]]) -> list[str]:
    """The axes on which the curves differ, in alphabetical order."""
    varying = []
    for axis in sorted(set().union(*curves)):
        kinds = {(type(curve.get(axis)), curve.get(axis)) for curve in curves}
        if len(kinds) > 1:
            varying.append(axis)
    return varying
