"""Predicted memory for every candidate of a plan, from predictions of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from jobs.spec import Choice, TrialSpec
from jobs.techniques import AXES
from orchestrator.search.answer.technique_priors import TechniquePriors, shipped_priors
from orchestrator.search.frontier.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.frontier.candidates import Candidate, Curve, candidates_of
from orchestrator.search.frontier.technique_knowledge import NO_DEVICE_MEMORY

_FEW = 300
"""A plan of so few trials is predicted whole."""
_LARGEST_PREDICTED = 256
"""Beyond it, the line through the last two sizes goes on."""
_SIZE_RATIO = 4
"""In a larger plan, each predicted micro-batch is at least so many times the one before."""


def worth_predicting(trials: Sequence[TrialSpec]) -> Sequence[TrialSpec]:
    """The trials whose memory is worth a prediction: a few sizes of each set of techniques.

    Memory is nearly affine in the micro-batch, so the other sizes lie between.
    """
    if len(trials) <= _FEW:
        return list(trials)
    by_curve: dict[Curve, list[Candidate]] = {}
    for candidate in candidates_of(trials):
        by_curve.setdefault(candidate.curve, []).append(candidate)
    first = next(iter(by_curve))
    chosen: list[TrialSpec] = []
    for curve in sorted(filter(partial(_needs_own, first), by_curve), key=_expected_log_time):
        last = 0
        for candidate in sorted(by_curve[curve], key=_micro_batch):
            size = candidate.micro_batch
            if last == 0 or _SIZE_RATIO * last <= size <= _LARGEST_PREDICTED:
                chosen.append(candidate.trials[0])
                last = size
    return chosen


def _needs_own(first: Curve, curve: Curve) -> bool:
    """Whether a curve's memory may differ from that of the curve without its other loop."""
    usual = {axis: value for axis, _, value in first.techniques}
    for axis, _, value in curve.techniques:
        if axis in NO_DEVICE_MEMORY and value != usual.get(axis):
            return False
    return True


def _expected_log_time(curve: Curve) -> float:
    """The fastest first, as recorded tables let expect: they are the likeliest picks."""
    priors = shipped_priors()
    total = 0.0
    for axis, _, value in curve.techniques:
        effect = priors.of(axis, value)
        # A technique that no table has waits, so that the likely ones are predicted soon.
        if effect.models:
            total += effect.log_time
        elif axis in AXES and value != AXES[axis].default:
            total += effect.deviation
    return total


def _micro_batch(candidate: Candidate) -> int:
    return candidate.micro_batch


class PredictedMemory:
    """Reads predictions, and completes them.

    Between two predicted sizes of a curve, memory is a straight line. A curve without predictions
    borrows those of the most similar curve that has some, times what its other techniques are
    expected to do.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        predicted_bytes: Mapping[str, float],
        priors: TechniquePriors,
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._trial_ids = [own.trial_ids[0] for own in candidates]
        self._sizes = np.array([own.micro_batch for own in candidates], float)
        numbers: Numbering[Curve] = Numbering()
        self.curves: Indices = np.array([numbers[own.curve] for own in candidates], int)
        """Number of each candidate's curve, optimizer included, shape (candidates,)."""
        self._codes, values = _codes(list(numbers))
        self._members = [np.flatnonzero(self.curves == own) for own in range(len(numbers))]
        self.log_bytes: Array = np.zeros(len(candidates))
        """Logarithms of predicted bytes, shape (candidates,)."""
        self.borrows: Mask = np.zeros(len(candidates), bool)
        """Whether a prediction is another curve's, shape (candidates,)."""
        self._changed: Indices = np.full(self._codes.shape, -1)
        """What each curve has that its lender has not, or -1, shape (curves, axes)."""
        self._effects = [_MemoryEffects(axis, listed, priors) for axis, listed in values]

    def read(self) -> bool:
        """Take in the predictions that there are now. Returns whether there is any."""
        lines = self._lines()
        if not lines:
            return False
        lending = np.array(sorted(lines), int)
        for curve, rows in enumerate(self._members):
            lender = curve
            if curve not in lines:
                differing = (self._codes[lending] != self._codes[curve]).sum(axis=1)
                lender = int(lending[np.argmin(differing)])
            sizes, sizes_bytes = lines[lender]
            log_bytes = np.log(_along(sizes, sizes_bytes, self._sizes[rows]))
            self.log_bytes[rows] = log_bytes + self._change(curve, lender)
            # Without a change that takes memory, the lender's prediction is its own.
            self.borrows[rows] = (self._changed[curve] >= 0).any()
        return True

    def borrowed_covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance of the errors of what was borrowed, shape (rows, columns)."""
        curves, row_numbers = np.unique(self.curves[rows], return_inverse=True)
        others, column_numbers = np.unique(self.curves[columns], return_inverse=True)
        covariance = np.zeros((len(curves), len(others)))
        for axis, effects in enumerate(self._effects):
            left, right = self._changed[curves, axis], self._changed[others, axis]
            # The index -1 selects the appended zeros.
            covariance += effects.covariance[left[:, None], right]
        return np.asarray(covariance[row_numbers][:, column_numbers])

    def borrowed_variances(self) -> Array:
        """The diagonal of ``borrowed_covariance`` for all candidates."""
        variances = np.zeros(len(self._changed))
        for axis, effects in enumerate(self._effects):
            variances += np.diag(effects.covariance)[self._changed[:, axis]]
        return np.asarray(variances[self.curves])

    def _change(self, curve: int, lender: int) -> float:
        """Note what a curve has that its lender has not. Returns what that does to the memory."""
        log_memory = 0.0
        for axis, effects in enumerate(self._effects):
            before, after = self._codes[lender, axis], self._codes[curve, axis]
            self._changed[curve, axis] = -1
            if before != after:
                self._changed[curve, axis] = after
                log_memory += effects.log_memory[after] - effects.log_memory[before]
        return log_memory

    def _lines(self) -> dict[int, tuple[Array, Array]]:
        """Curve -> its predicted sizes, ascending, and their bytes."""
        points: dict[int, dict[float, float]] = {}
        for row, trial_id in enumerate(self._trial_ids):
            predicted = self._predicted_bytes.get(trial_id)
            if predicted is not None:
                points.setdefault(int(self.curves[row]), {})[self._sizes[row]] = predicted
        lines = {}
        for curve, line in points.items():
            # One size says nothing of how memory grows, unless the curve has no other one.
            if len(line) < 2 <= len(self._members[curve]):
                continue
            sizes = sorted(line)
            lines[curve] = (np.array(sizes), np.array([line[size] for size in sizes]))
        return lines


class _MemoryEffects:
    """What the values of one axis are expected to do to the memory."""

    def __init__(self, axis: str, values: Sequence[Choice], priors: TechniquePriors) -> None:
        effects = [priors.of(axis, value) for value in values]
        self.log_memory = np.array([effect.log_memory for effect in effects])
        """Shape (values,)."""
        deviations = np.array([effect.memory_deviation for effect in effects])
        # The default has no deviation, but to change to it from another value has one.
        deviations = np.where(deviations > 0, deviations, deviations.max(initial=0.0))
        rows = []
        for first in values:
            rows.append([priors.correlation(axis, first, second) for second in values])
        count = len(values)
        self.covariance = np.zeros((count + 1, count + 1))
        """Shape (values + 1, values + 1). The last row and column are zeros: no change."""
        self.covariance[:count, :count] = np.outer(deviations, deviations) * np.array(rows)


def _along(sizes: Array, sizes_bytes: Array, wanted: Array) -> Array:
    """Bytes at any micro-batch: straight lines between known sizes, and beyond the last two."""
    values = np.interp(wanted, sizes, sizes_bytes)
    if len(sizes) < 2:
        return np.asarray(values)
    slope = (sizes_bytes[-1] - sizes_bytes[-2]) / (sizes[-1] - sizes[-2])
    beyond = np.maximum(wanted - sizes[-1], 0.0)
    return np.asarray(values + slope * beyond)


def _codes(curves: Sequence[Curve]) -> tuple[Indices, list[tuple[str, list[Choice]]]]:
    """A number for each choice of each curve that takes memory, shape (curves, axes and regime).

    Also the name of each of these axes, and its values in the order of their numbers. The regime,
    which is constant along a curve, has the name "".
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
    """A curve's value on an axis; for "" its regime, as text."""
    if not axis:
        return str(curve.regime)
    for name, _, value in curve.techniques:
        if name == axis:
            return value
    return ""
