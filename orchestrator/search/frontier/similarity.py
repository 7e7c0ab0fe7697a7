"""The kernels of the surrogate: the similarity of candidates and curves, from their choices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from jobs.spec import Choice
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate, Curve, Regime
from orchestrator.search.model.hyperparameters import Hyperparameters
from orchestrator.search.model.technique_knowledge import includes_host_work_of, representative


def misfit_kernel(candidates: Sequence[Candidate], correlation_per_choice: float) -> Array:
    """Correlation of two candidates' distances from the law, shape (candidates, candidates).

    A squared-exponential kernel over the logarithm of the micro-batch, with a length scale of one
    octave (Rasmussen and Williams, Gaussian Processes for Machine Learning, section 4.2), times
    ``correlation_per_choice`` for each choice in which the curves differ.
    """
    sizes = []
    curves = []
    for candidate in candidates:
        sizes.append(candidate.micro_batch)
        curves.append(candidate.curve)
    # Distance in octaves: a doubling of the micro-batch counts as 1.
    octaves = np.log2(sizes)
    of_sizes = np.exp(-(np.subtract.outer(octaves, octaves) ** 2) / 2)
    differing = differing_choices(curves)
    return np.asarray(correlation_per_choice**differing * of_sizes)


def differing_choices(curves: Iterable[Curve]) -> Array:
    """In how many choices two curves differ, the regime included; shape (curves, curves)."""
    codes = _codes(curves)
    return np.asarray((codes[:, None] != codes[None]).sum(axis=2), float)


def shared_choices(curves: Iterable[Curve], similar_value_share: float) -> Array:
    """How much two curves share on each axis that varies, shape (curves, curves, varying axes).

    1 if the values are equal, ``similar_value_share`` if they are similar, else 0. One axis
    of ones if no axis varies.
    """
    listed = list(curves)
    codes = _codes(listed)
    # An axis with one value says nothing about similarity.
    varies = (codes != codes[:1]).any(axis=0)
    if not varies.any():
        return np.ones((len(listed), len(listed), 1))
    of_representatives = _codes(listed, merge_similar=True)
    is_equal = _pairwise_equal(codes[:, varies])
    is_similar = _pairwise_equal(of_representatives[:, varies])
    return np.where(is_equal, 1.0, similar_value_share * is_similar)


def _pairwise_equal(codes: Indices) -> Mask:
    return np.asarray(codes[:, None] == codes[None])


def curve_covariance(curves: Sequence[Curve], hyperparameters: Hyperparameters) -> Array:
    """Prior covariance of one kind of parameter between curves, shape (curves, curves).

    It is a sum of three kernels. One is constant. One is additive over the axes (Duvenaud et al.,
    Additive Gaussian Processes, 2011). One is shared only by equal or similar curves.
    """
    shared = shared_choices(curves, hyperparameters.similar_value_share)
    # The terms are what all curves share, what equal values share, and what equal curves share.
    constant = hyperparameters.common_deviation**2
    additive = hyperparameters.axis_deviation**2 * shared.mean(axis=2)
    joint = hyperparameters.curve_deviation**2 * shared.min(axis=2)
    return np.asarray(constant + additive + joint)


def prior_covariance(
    of_curves: Array, family_count: int, hyperparameters: Hyperparameters, *, is_time: bool
) -> Array:
    """Prior covariance of all parameters of a cost, in the order of ``ParameterLayout``.

    Floors, bases and slopes each have the block ``of_curves``. Extras have a variance of 1.
    """
    count = len(of_curves)
    floors = slice(0, count)
    bases = slice(count, 2 * count)
    slopes = slice(2 * count, 3 * count)
    covariance = np.eye(3 * count + family_count)
    for kind in (floors, bases, slopes):
        covariance[kind, kind] = of_curves
    if is_time:
        # Base and slope are times of the same GPU. So a curve with a small base probably has a
        # small slope. What all curves share (``common_deviation``) stays independent.
        between = of_curves - hyperparameters.common_deviation**2
        covariance[bases, slopes] = hyperparameters.base_slope_correlation * between
        covariance[slopes, bases] = hyperparameters.base_slope_correlation * between
    return covariance


def similarity_groups(candidates: Sequence[Candidate]) -> dict[Candidate, int]:
    """Candidate -> number of its group. Members of a group differ only in similar values."""
    numbers: Numbering[tuple[object, ...]] = Numbering()
    codes = _codes([candidate.curve for candidate in candidates], merge_similar=True)
    groups = {}
    for candidate, code in zip(candidates, codes.tolist(), strict=True):
        key = (candidate.training_recipe, candidate.micro_batch, *code)
        groups[candidate] = numbers[key]
    return groups


def with_no_more_host_work(
    candidates: Sequence[Candidate],
) -> dict[Candidate, frozenset[Candidate]]:
    """Candidate -> the others of the same batch whose steps need no more work of the host."""
    # Only candidates of one batch can need equal work.
    groups: dict[Hashable, list[Candidate]] = {}
    for candidate in candidates:
        batch = (candidate.training_recipe, candidate.micro_batch, candidate.curve.regime)
        groups.setdefault(batch, []).append(candidate)
    covered = {}
    for group in groups.values():
        for candidate in group:
            covered[candidate] = _covered_by(candidate, group)
    return covered


def _covered_by(candidate: Candidate, group: Iterable[Candidate]) -> frozenset[Candidate]:
    """The other candidates of the group whose host work the candidate's includes."""
    covered = set()
    for other in group:
        if other is not candidate and _includes_host_work(candidate, other):
            covered.add(other)
    return frozenset(covered)


def _includes_host_work(candidate: Candidate, other: Candidate) -> bool:
    choices = {axis: value for axis, _, value in candidate.techniques}
    for axis, _, value in other.techniques:
        if not includes_host_work_of(axis, choices.get(axis), value):
            return False
    return True


def _codes(curves: Iterable[Curve], *, merge_similar: bool = False) -> Indices:
    """A number for each choice of each curve, shape (curves, axes and the regime).

    Equal choices have equal numbers; with ``merge_similar`` similar choices do, too.
    """
    rows = [_labeled_choices(curve, merge_similar) for curve in curves]
    axes = sorted(set().union(*rows))
    # Numbers are given in the order in which choices come up, row by row.
    numbers: Numbering[object] = Numbering()
    codes = np.zeros((len(rows), len(axes)), int)
    for number, row in enumerate(rows):
        for column, axis in enumerate(axes):
            codes[number, column] = numbers[axis, row.get(axis)]
    return codes


def _labeled_choices(
    curve: Curve, merge_similar: bool
) -> Mapping[str, Regime | tuple[str, Choice]]:
    """Axis -> type and value; "" -> the regime."""
    labeled: dict[str, Regime | tuple[str, Choice]] = {"": curve.regime}
    for axis, type_name, value in curve.techniques:
        if merge_similar:
            value = representative(axis, value)
        labeled[axis] = (type_name, value)
    return labeled
