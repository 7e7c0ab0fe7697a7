"""Prior means and covariances of the parameters of curves, before any measurement.

A curve is a set of techniques at all micro-batches. The covariance between two curves is a sum of
four kernels: for all curves, for each common technique, for each common pair of techniques, and for
the curve alone (Duvenaud et al., Additive Gaussian Processes, 2011). It is computed only between
all curves and the measured ones, so it is cheap for large plans.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from jobs.spec import Choice
from orchestrator.search.model.arrays import Array, Indices, Numbering
from orchestrator.search.model.candidates import Candidate, Curve
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.effects.unrecorded import INTERACTIONS, Effect


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
    overhead: float = 0.3
    """Deviation of the extra cost of an optimizer, as a share of the smallest measured cost."""
    least_overhead: float = 0.03
    """Smallest deviation of such an overhead, however well its effect was recorded."""
    discrepancy_per_choice: float = 0.7
    """Factor on the correlation of two candidates' discrepancies for each choice in which they
    differ."""


SCALES = PriorScales()


@dataclass(frozen=True, kw_only=True, slots=True)
class VaryingAxis:
    """An axis with its values in the order in which curves first have them."""

    name: str
    """Empty for what is constant along a curve."""
    values: Sequence[Choice]
    codes: Indices
    """Index of each curve's value, shape (curves,)."""
    similarities: Array
    """Prior correlation of the effects of two values, shape (values, values)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Effects:
    """What the values of an axis change, or the pairs of values of two axes."""

    codes: Indices
    """Index of each curve's value, shape (curves,)."""
    means: Array
    """Expected logarithms of the factors on a parameter, shape (values,)."""
    covariance: Array
    """Shape (values, values)."""


class CurvePrior:
    """Prior means and covariances of the parameters of a plan's curves, relative to its first
    candidate. A technique affects all parameters of a time in a similar way. Of memory, it has one
    effect on the base, the weights and optimizer states, and another on the slope, the
    activations."""

    def __init__(
        self, candidates: Sequence[Candidate], priors: TechniquePriors, *, is_time: bool
    ) -> None:
        references = [candidate.reference_curve for candidate in candidates]
        curves: Numbering[Curve] = Numbering()
        self.curve_of = curves.of(own if is_time else own.of_memory for own in references)
        """Index of each candidate's curve, shape (candidates,)."""
        self.count = len(curves)
        self._axes = varying_axes(list(curves), priors)
        if is_time:
            of_time = _effects(self._axes, priors, lambda own: (own.log_time, own.deviation))
            self._parts = [[*of_time, *_interactions(self._axes)]]
            self._pairs = np.array([SCALES.pair])
        else:
            of_base = _effects(self._axes, priors, lambda own: (0.0, own.memory_deviation))
            self._parts = [of_base, _effects(self._axes, priors, Effect.of_sample)]
            self._pairs = np.array([SCALES.pair, SCALES.slope_pair])
        self.log_effects = np.zeros((len(self._parts), self.count))
        """Expected logarithms of each curve's parameters, relative to the first curve's. Shape
        (parts, curves): one part for a time, base and slope for memory."""
        for log_effects, part in zip(self.log_effects, self._parts, strict=True):
            for effects in part:
                log_effects += effects.means[effects.codes]

    def covariance(self, left: Indices, right: Indices) -> Array:
        """Covariance of each part between curves, without what all have in common, shape (parts,
        ...)."""
        shape = np.broadcast_shapes(left.shape, right.shape)
        covariance = np.zeros((len(self._parts), *shape))
        # One axis at a time: an array with all of them would be large.
        for own, part in zip(covariance, self._parts, strict=True):
            for effects in part:
                own += effects.covariance[effects.codes[left], effects.codes[right]]
        shared, shared_with_itself = np.zeros(shape), np.zeros(shape)
        for axis in self._axes:
            similarity = axis.similarities[axis.codes[left], axis.codes[right]]
            shared += similarity
            shared_with_itself += similarity**2
        # The sum of products over all pairs of axes (Newton and Girard), as a share of all pairs.
        # With n equal values it is n (n - 1) / 2 pairs. Similar values count as equal in part.
        axes = len(self._axes)
        pairs = (shared**2 - shared_with_itself) / max(1, axes * (axes - 1))
        covariance += np.multiply.outer(self._pairs**2, pairs)
        return np.asarray(covariance + SCALES.curve**2 * (left == right))

    def new_choices(self, curve: int, known: Indices) -> Array:
        """How much of the choices that no known curve has, else of the combination, each curve
        shares, from 0 to 1, shape (curves,)."""
        is_equal = [axis.codes == axis.codes[curve] for axis in self._axes]
        new = [equal for equal in is_equal if not equal[known].any()]
        if not new:
            return np.asarray(np.arange(self.count) == curve, float)
        return np.asarray(np.mean(new, axis=0))

    def differing(self, left: Indices, right: Indices) -> Array:
        """Number of axes on which two curves differ, in the shape to which both are broadcast."""
        differing = np.zeros(np.broadcast_shapes(left.shape, right.shape))
        for axis in self._axes:
            differing += axis.codes[left] != axis.codes[right]
        return differing


def _effects(
    axes: Sequence[VaryingAxis],
    priors: TechniquePriors,
    expected: Callable[[Effect], tuple[float, float]],
) -> list[_Effects]:
    """The effects of axes; ``expected``: mean and deviation of the logarithm of one on the
    parameter."""
    listed = []
    for axis in axes:
        effects = [priors.between(axis.name, axis.values[0], value) for value in axis.values]
        means, deviations = np.array([expected(effect) for effect in effects]).T
        # Cov(a, b) = correlation · deviation of a · deviation of b.
        covariance = np.outer(deviations, deviations) * axis.similarities
        listed.append(_Effects(codes=axis.codes, means=means, covariance=covariance))
    return listed


def _interactions(axes: Sequence[VaryingAxis]) -> Iterator[_Effects]:
    """The effects on the time of having pairs of techniques, beyond the effects of each."""
    by_name = {axis.name: axis for axis in axes}
    for (one, other), expected in INTERACTIONS.items():
        if one in by_name and other in by_name:
            first, second = by_name[one], by_name[other]
            # A pair changes something where both values differ from those of the first curve.
            is_changed = np.kron(
                np.arange(len(first.values)) > 0, np.arange(len(second.values)) > 0
            )
            similarities = np.kron(first.similarities, second.similarities)
            yield _Effects(
                codes=first.codes * len(second.values) + second.codes,
                means=expected.log_time * is_changed,
                covariance=expected.deviation**2 * np.outer(is_changed, is_changed) * similarities,
            )


def varying_axes(curves: Sequence[Curve], priors: TechniquePriors) -> list[VaryingAxis]:
    """The axes on which some of the curves differ, in alphabetical order."""
    choices: list[dict[str, tuple[str, object]]] = []
    for curve in curves:
        techniques = {axis: (kind, value) for axis, kind, value in curve.techniques}
        choices.append({"": ("str", str(curve.regime)), **techniques})
    varying = []
    for name in sorted(set().union(*choices)):
        numbers: Numbering[tuple[str, object]] = Numbering()
        codes = numbers.of(own.get(name, ("NoneType", None)) for own in choices)
        if len(numbers) > 1:
            values = [cast(Choice, value) for _, value in numbers]
            rows = [[priors.correlation(name, one, other) for other in values] for one in values]
            varying.append(
                VaryingAxis(name=name, values=values, codes=codes, similarities=np.array(rows))
            )
    return varying
