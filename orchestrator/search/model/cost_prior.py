"""The prior covariance of a cost between candidates, from the model linearized at its fit."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from jobs.spec import Choice
from orchestrator.search.model.arrays import Array, Indices, Numbering, between
from orchestrator.search.model.candidates import OPTIMIZER, Candidate, OptimizerFamily
from orchestrator.search.model.curve_prior import SCALES, CurvePrior
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.hyperparameters import OF_MEMORY, OF_TIME


class CostPrior:
    """The candidates of the plan as arrays, and the covariance of their costs."""

    def __init__(
        self, candidates: Sequence[Candidate], priors: TechniquePriors, *, is_time: bool
    ) -> None:
        self.is_time = is_time
        self.hyperparameters = OF_TIME if is_time else OF_MEMORY
        self.curves = CurvePrior(candidates, priors, is_time=is_time)
        # The floor of a time is that of the host, so no technique is expected to change it.
        self.effects = self.curves.log_effects[[0, 0, -1]] * [[0], [1], [1]]
        """Expected logarithms of the effects of each curve's techniques on floor, base and slope,
        shape (3, curves)."""
        self._weights, self._common = _covariances_of_parts(is_time=is_time)
        self.sizes = np.array([candidate.micro_batch for candidate in candidates], float)
        families: Numbering[OptimizerFamily] = Numbering()
        self.families = np.array([_family_number(own, families, is_time) for own in candidates])
        """Index of each candidate's optimizer family; -1 for the plan's first optimizer."""
        reference = candidates[0].trials[0].choices.get(OPTIMIZER)
        overheads = [_expected_overhead(own, reference, priors, is_time) for own in families]
        self.overhead_means, self._overhead_deviations = np.reshape(overheads, (-1, 2)).T
        """Expected overhead of each family and its deviation, in smallest measured costs."""
        # The passes of a step share the optimizer's time. Memory is always paid in full.
        passes = [candidate.accumulation if is_time else 1 for candidate in candidates]
        self.overhead_shares = 1 / np.array(passes)
        """Share of an overhead that one micro-batch pays, shape (candidates,)."""

    def expect(self, seconds: Mapping[int, float]) -> None:
        """Expect of times what was forecast: candidate -> seconds of a sample. What is recorded of
        techniques is then only a correction: a curve without a forecast differs as recorded from
        the curve with one that shares the most of its choices."""
        least: dict[int, float] = {}
        """Curve -> the logarithm of its least forecast time per sample."""
        for index, forecast in seconds.items():
            curve = int(self.curves.curve_of[index])
            least[curve] = min(least.get(curve, math.inf), math.log(forecast))
        if not least:
            return
        known = np.array(list(least), int)
        recorded = self.curves.log_effects[-1]
        residual = np.array(list(least.values())) - recorded[known]
        differing = self.curves.differing(np.arange(self.curves.count)[:, None], known)
        self.effects[1:] = recorded + residual[differing.argmin(axis=1)]

    def of_parameters(self, curves: Indices) -> Array:
        """Prior covariance of all parameters of the performance model for some curves."""
        of_curves = self.of_curves(curves, curves)
        to_overheads = np.zeros((len(of_curves), len(self.overhead_means)))
        # The overheads of optimizers are independent of the curves and of each other.
        overheads = np.diag(self._overhead_deviations**2)
        return np.block([[of_curves, to_overheads], [to_overheads.T, overheads]])

    def of_curves(self, rows: Indices, columns: Indices) -> Array:
        """Prior covariance of floors, bases and slopes, shape (3 × rows, 3 × columns)."""
        blocks = self._blocks(rows[:, None], columns)
        return np.asarray(blocks.swapaxes(1, 2).reshape(3 * len(rows), 3 * len(columns)))

    def _blocks(self, left: Indices, right: Indices) -> Array:
        """Covariances between the parts of curves, shape (3, 3, ...) with that of their pairs."""
        # Floors and bases have the first part, slopes the last one.
        of_parts = self.curves.covariance(left, right)[[0, 0, -1]]
        shape = (3, 3) + (1,) * (of_parts.ndim - 1)
        return np.asarray(self._weights.reshape(shape) * of_parts + self._common.reshape(shape))

    def between(self, derivatives: Array, rows: Indices, columns: Indices) -> Array:
        """Prior covariance of what the model, with the ``derivatives`` of all candidates, says of
        costs, shape (rows, columns)."""
        # Linearized, Cov(cost a, cost b) is the sum over all pairs of parameters of derivative ·
        # derivative · covariance. Candidates of the same curve have equal parameters.
        of_rows, of_columns = derivatives[:3, rows, None], derivatives[:3, columns]
        blocks = between(self._blocks, self.curves.curve_of, rows, columns)
        covariance = np.einsum("i...,ij...,j...->...", of_rows, blocks, of_columns)
        # Candidates with the same optimizer share its overhead.
        is_same_family = self.families[rows][:, None] == self.families[columns]
        overheads = self._overhead_errors(derivatives)
        return np.asarray(
            covariance + is_same_family * np.outer(overheads[rows], overheads[columns])
        )

    def variances(self, derivatives: Array) -> Array:
        """The diagonal of ``between`` for all candidates, shape (candidates,)."""
        every = np.arange(self.curves.count)
        blocks = self._blocks(every, every)[:, :, self.curves.curve_of]
        variances = np.einsum("ic,ijc,jc->c", derivatives[:3], blocks, derivatives[:3])
        return np.asarray(variances + self._overhead_errors(derivatives) ** 2)

    def discrepancy_kernel(self, rows: Indices, columns: Indices) -> Array:
        """Correlation of the discrepancies, shape (rows, columns): a squared-exponential kernel
        over the octaves of the micro-batch, times a factor for each choice in which two curves
        differ."""
        differing = between(self.curves.differing, self.curves.curve_of, rows, columns)
        octaves = np.log2(self.sizes[rows])[:, None] - np.log2(self.sizes[columns])
        return np.asarray(SCALES.discrepancy_per_choice**differing * np.exp(-(octaves**2) / 2))

    def _overhead_errors(self, derivatives: Array) -> Array:
        """Standard deviation of each cost by the overhead of its optimizer, shape (candidates,)."""
        # The index -1 of the reference optimizer selects the appended zero.
        return np.asarray(np.append(self._overhead_deviations, 0.0)[self.families] * derivatives[3])


def _covariances_of_parts(*, is_time: bool) -> tuple[Array, Array]:
    """Weights of the covariance of a technique's effects on floor, base and slope, and the
    covariance of the parts that all curves share; two matrices of shape (3, 3)."""
    weights = np.eye(3)
    common = SCALES.common**2 * np.eye(3)
    if is_time:
        common[0, 0] = SCALES.common_floor**2
        # Base and slope are both times of the GPU, so a technique affects both in a similar way.
        weights[1, 2] = weights[2, 1] = SCALES.base_slope_correlation
        # The ratio of base to slope has a known deviation. The covariance follows from
        # Var(base - slope) = Var(base) + Var(slope) - 2 Cov(base, slope), of logarithms.
        common[1, 2] = common[2, 1] = SCALES.common**2 - SCALES.common_base_to_slope**2 / 2
    return weights, common


def _family_number(
    candidate: Candidate, families: Numbering[OptimizerFamily], is_time: bool
) -> int:
    # The optimizer is that of the plan's first trial.
    if candidate.curve == candidate.reference_curve:
        return -1
    return families[candidate.optimizer_family(is_time=is_time)]


def _expected_overhead(
    family: OptimizerFamily, reference: Choice, priors: TechniquePriors, is_time: bool
) -> tuple[float, float]:
    """Expected extra cost of an optimizer and its deviation; extra times may be recorded."""
    for axis, _, value in family[1]:
        if is_time and axis == OPTIMIZER and priors.has(axis, value):
            effect = priors.between(axis, reference, value)
            deviation = min(SCALES.overhead, max(SCALES.least_overhead, effect.deviation))
            # A factor of the time was recorded; the overhead is what it adds to a time of 1.
            return math.expm1(effect.log_time), deviation
    return 0.0, SCALES.overhead
