"""Predicted memory of every candidate of a plan, interpolated from predictions of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from jobs.spec import Choice, TrialSpec
from jobs.techniques import AXES
from orchestrator.search.answer.curve_prior import SLOPE_OF_MEMORY
from orchestrator.search.answer.technique_priors import TechniquePriors, shipped_priors
from orchestrator.search.frontier.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.frontier.candidates import Candidate, Curve, candidates_of
from orchestrator.search.frontier.technique_knowledge import NO_DEVICE_MEMORY

_SMALL_PLAN = 300
"""In a plan with at most this many trials, all are predicted."""
_LARGEST_PREDICTED = 256
"""The largest micro-batch to predict. Larger ones are extrapolated from the last two."""
_SIZE_RATIO = 4
"""In a larger plan, each predicted micro-batch is at least this many times the one before."""
_OF_ACTIVATIONS = frozenset(
    ("activations", "attention", "batching", "compile", "experts", "kernels", "loss")
)
"""Axes that change the memory of the samples, and not that of weights and optimizer states."""
_USUAL_BASE = 0.5
"""Share of a prediction that does not depend on the micro-batch, if only one was predicted."""


def worth_predicting(trials: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
    """The trials to predict: a few micro-batches of each set of techniques, the fastest sets first.

    Memory is nearly affine in the micro-batch, so the other micro-batches can be interpolated.
    """
    if len(trials) <= _SMALL_PLAN:
        return list(trials)
    by_curve: dict[Curve, list[Candidate]] = {}
    for candidate in candidates_of(trials):
        by_curve.setdefault(candidate.curve, []).append(candidate)
    first = next(iter(by_curve))
    chosen: list[TrialSpec] = []
    for curve in sorted(
        filter(partial(_needs_prediction, first), by_curve), key=_expected_log_time
    ):
        last = 0
        for candidate in sorted(by_curve[curve], key=_micro_batch):
            size = candidate.micro_batch
            if last == 0 or _SIZE_RATIO * last <= size <= _LARGEST_PREDICTED:
                chosen.append(candidate.trials[0])
                last = size
    return chosen


def _needs_prediction(first: Curve, curve: Curve) -> bool:
    """Whether a curve needs predictions of its own.

    A curve that differs from the first one in a technique without effect on device memory, such as
    a data loader, has the memory of another curve.
    """
    usual = {axis: value for axis, _, value in first.techniques}
    for axis, _, value in curve.techniques:
        if axis in NO_DEVICE_MEMORY and value != usual.get(axis):
            return False
    return True


def _expected_log_time(curve: Curve) -> float:
    """Expected logarithm of a curve's time, by the recorded tables; a key to sort by.

    The fastest curves are predicted first, because they are the likeliest picks.
    """
    priors = shipped_priors()
    total = 0.0
    for axis, _, value in curve.techniques:
        effect = priors.of(axis, value)
        # A technique without a recorded effect comes later, as if it were slower.
        if effect.models:
            total += effect.log_time
        elif axis in AXES and value != AXES[axis].default:
            total += effect.deviation
    return total


def _micro_batch(candidate: Candidate) -> int:
    return candidate.micro_batch


class PredictedMemory:
    """Reads predictions, and fills in the missing ones.

    Between two predicted micro-batches of a curve, memory is interpolated linearly. A curve without
    predictions borrows those of the predicted curve that differs in the fewest choices. They are
    multiplied by the expected effect of these choices. The effect of a choice that concerns the
    activations multiplies only the part that grows with the micro-batch.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._trial_ids = [candidate.trial_ids[0] for candidate in candidates]
        self._sizes = np.array([candidate.micro_batch for candidate in candidates], float)
        numbers: Numbering[Curve] = Numbering()
        self.curves: Indices = np.array([numbers[candidate.curve] for candidate in candidates], int)
        """Index of each candidate's curve, optimizer included, shape (candidates,)."""
        self._codes, values = _codes(list(numbers))
        self._members = [np.flatnonzero(self.curves == curve) for curve in range(len(numbers))]
        """The candidates of each curve."""
        self.log_bytes: Array = np.zeros(len(candidates))
        """Logarithms of predicted bytes, shape (candidates,); zeros before ``read``."""
        self.borrows: Mask = np.zeros(len(candidates), bool)
        """Whether a candidate's prediction is borrowed, shape (candidates,)."""
        self._changed: Indices = np.full(self._codes.shape, -1)
        """Index of a curve's value on an axis where its lender has another one; -1 where it has
        not.

        Shape (curves, axes)."""
        self._effects = [_MemoryEffects(axis, listed, priors) for axis, listed in values]
        self.sample_weights: Array = np.ones(len(candidates))
        """Relative change of a candidate's memory / relative change of an effect on activations,
        shape (candidates,)."""

    def read(self) -> bool:
        """Take in all predictions that have arrived. Returns whether there are any."""
        lines = self._lines()
        if not lines:
            return False
        predicted_curves = np.array(sorted(lines), int)
        for curve, rows in enumerate(self._members):
            lender = curve
            if curve not in lines:
                differing = (self._codes[predicted_curves] != self._codes[curve]).sum(axis=1)
                lender = int(predicted_curves[np.argmin(differing)])
            self.log_bytes[rows] = self._borrowed(
                rows, *lines[lender], *self._change(curve, lender)
            )
            # If no choice that affects memory differs, the prediction counts as the curve's own.
            self.borrows[rows] = (self._changed[curve] >= 0).any()
        return True

    def _borrowed(
        self, rows: Indices, sizes: Array, sizes_bytes: Array, of_samples: float, of_all: float
    ) -> Array:
        """Logarithms of the bytes of candidates, from a line and the changes of its memory.

        ``of_samples`` and ``of_all`` are the logarithms of the changes of the part that grows with
        the micro-batch, and of all memory. Also sets ``sample_weights``.
        """
        line = _interpolated(sizes, sizes_bytes, self._sizes[rows])
        base = np.minimum(_base(sizes, sizes_bytes), line)
        samples = (line - base) * np.exp(of_samples)
        self.sample_weights[rows] = SLOPE_OF_MEMORY * samples / (base + samples)
        return np.asarray(np.log(base + samples) + of_all)

    def borrowed_covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance of the errors of borrowed predictions, shape (rows, columns).

        Two curves share the errors of the choices in which both differ from their lenders.
        """
        curves, row_numbers = np.unique(self.curves[rows], return_inverse=True)
        others, column_numbers = np.unique(self.curves[columns], return_inverse=True)
        of_samples = np.zeros((len(curves), len(others)))
        of_all = np.zeros((len(curves), len(others)))
        for axis, effects in enumerate(self._effects):
            left, right = self._changed[curves, axis], self._changed[others, axis]
            target = of_samples if effects.is_of_samples else of_all
            # The index -1 selects the appended zeros.
            target += effects.covariance[left[:, None], right]
        weights = np.outer(self.sample_weights[rows], self.sample_weights[columns])
        covariance = weights * of_samples[row_numbers][:, column_numbers]
        return np.asarray(covariance + of_all[row_numbers][:, column_numbers])

    def borrowed_variances(self) -> Array:
        """The diagonal of ``borrowed_covariance`` for all candidates."""
        of_samples = np.zeros(len(self._changed))
        of_all = np.zeros(len(self._changed))
        for axis, effects in enumerate(self._effects):
            target = of_samples if effects.is_of_samples else of_all
            target += np.diag(effects.covariance)[self._changed[:, axis]]
        return np.asarray(self.sample_weights**2 * of_samples[self.curves] + of_all[self.curves])

    def _change(self, curve: int, lender: int) -> tuple[float, float]:
        """Set ``_changed`` of a curve. Returns the expected changes of the logarithm of bytes.

        First that of the part that grows with the micro-batch, then that of all memory.
        """
        of_samples = 0.0
        of_all = 0.0
        for axis, effects in enumerate(self._effects):
            before, after = self._codes[lender, axis], self._codes[curve, axis]
            self._changed[curve, axis] = -1
            if before != after:
                self._changed[curve, axis] = after
                change = float(effects.log_memory[after] - effects.log_memory[before])
                if effects.is_of_samples:
                    # Recorded effects are those on all memory of a trial.
                    of_samples += SLOPE_OF_MEMORY * change
                else:
                    of_all += change
        return of_samples, of_all

    def _lines(self) -> dict[int, tuple[Array, Array]]:
        """Curve -> its predicted micro-batches, ascending, and their bytes."""
        points: dict[int, dict[float, float]] = {}
        for row, trial_id in enumerate(self._trial_ids):
            predicted = self._predicted_bytes.get(trial_id)
            if predicted is not None:
                points.setdefault(int(self.curves[row]), {})[self._sizes[row]] = predicted
        lines = {}
        for curve, line in points.items():
            # One micro-batch does not show how memory grows. It is used only if the curve has no
            # other.
            if len(line) < 2 <= len(self._members[curve]):
                continue
            sizes = sorted(line)
            lines[curve] = (np.array(sizes), np.array([line[size] for size in sizes]))
        return lines


class _MemoryEffects:
    """The expected effects on memory of the values of one axis, and their covariance."""

    def __init__(self, axis: str, values: Sequence[Choice], priors: TechniquePriors) -> None:
        effects = [priors.of(axis, value) for value in values]
        self.is_of_samples = axis in _OF_ACTIVATIONS
        """Whether the values change only the memory that grows with the micro-batch."""
        self.log_memory = np.array([effect.log_memory for effect in effects])
        """Expected logarithms of the factors on the memory, shape (values,)."""
        deviations = np.array([effect.memory_deviation for effect in effects])
        # The default has no deviation, but a change from another value to the default has one.
        deviations = np.where(deviations > 0, deviations, deviations.max(initial=0.0))
        rows = []
        for first in values:
            rows.append([priors.correlation(axis, first, second) for second in values])
        count = len(values)
        self.covariance = np.zeros((count + 1, count + 1))
        """Shape (values + 1, values + 1). The last row and column are zeros: no change."""
        self.covariance[:count, :count] = np.outer(deviations, deviations) * np.array(rows)


def _base(sizes: Array, sizes_bytes: Array) -> float:
    """Bytes that do not depend on the micro-batch: where the line of the first two meets zero."""
    if len(sizes) < 2:
        return _USUAL_BASE * float(sizes_bytes[0])
    slope = (sizes_bytes[1] - sizes_bytes[0]) / (sizes[1] - sizes[0])
    return float(np.clip(sizes_bytes[0] - slope * sizes[0], 0.0, sizes_bytes[0]))


def _interpolated(sizes: Array, sizes_bytes: Array, wanted: Array) -> Array:
    """Bytes at the ``wanted`` micro-batches: linear between known ones, and beyond the last two.

    Below the smallest known micro-batch it is that one's bytes.
    """
    values = np.interp(wanted, sizes, sizes_bytes)
    if len(sizes) < 2:
        return np.asarray(values)
    slope = (sizes_bytes[-1] - sizes_bytes[-2]) / (sizes[-1] - sizes[-2])
    beyond = np.maximum(wanted - sizes[-1], 0.0)
    return np.asarray(values + slope * beyond)


def _codes(curves: Sequence[Curve]) -> tuple[Indices, list[tuple[str, list[Choice]]]]:
    """For each curve, the indices of its choices that affect memory, shape (curves, 1 + axes).

    Also the name of each axis, and its values in the order of their indices. Column 0 is the
    regime, which is constant along a curve; its name is "".
    """
    axes = sorted({axis for curve in curves for axis, _, _ in curve.techniques} - NO_DEVICE_MEMORY)
    codes = np.zeros((len(curves), len(axes) + 1), int)
    values: list[tuple[str, list[Choice]]] = []
    for column, axis in enumerate(["", *axes]):
        numbers: Numbering[tuple[str, object]] = Numbering()
        listed: list[Choice] = []
        for row, curve in enumerate(curves):
            value = _choice(curve, axis)
            codes[row, column] = numbers[type(value).__name__, value]
            if len(numbers) > len(listed):
                listed.append(value)
        values.append((axis, listed))
    return codes, values


def _choice(curve: Curve, axis: str) -> Choice:
    """The value of a curve on an axis; for "" its regime, as text."""
    if not axis:
        return str(curve.regime)
    for name, _, value in curve.techniques:
        if name == axis:
            return value
    return ""
