"""Predicted memory of every candidate of a plan, interpolated from predictions of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from jobs.spec import TrialSpec
from jobs.techniques import AXES
from orchestrator.search.answer.technique_priors import shipped_priors
from orchestrator.search.frontier.arrays import Array, Indices, Numbering
from orchestrator.search.frontier.candidates import Candidate, Curve, candidates_of
from orchestrator.search.frontier.technique_knowledge import NO_DEVICE_MEMORY

_SMALL_PLAN = 300
"""In a plan with at most this many trials, all are predicted."""
_LARGEST_PREDICTED = 256
"""The largest micro-batch to predict. Larger ones are extrapolated from the last two."""
_SIZE_RATIO = 4
"""In a larger plan, each predicted micro-batch is at least this many times the one before."""


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
    predictions borrows those of the predicted curve that differs in the fewest choices.
    """

    def __init__(
        self, candidates: Sequence[Candidate], predicted_bytes: Mapping[str, float]
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._trial_ids = [candidate.trial_ids[0] for candidate in candidates]
        self._sizes = np.array([candidate.micro_batch for candidate in candidates], float)
        numbers: Numbering[Curve] = Numbering()
        self.curves: Indices = np.array([numbers[candidate.curve] for candidate in candidates], int)
        """Index of each candidate's curve, optimizer included, shape (candidates,)."""
        self._codes = _codes(list(numbers))
        self.log_bytes: Array = np.zeros(len(candidates))
        """Logarithms of predicted bytes, shape (candidates,); zeros before ``read``."""
        self.borrow_reasons: Indices = np.full(len(candidates), -1)
        """Index of the reason why a candidate's prediction is borrowed; -1 if it is not borrowed.

        Shape (candidates,). A reason is a set of choices that the lending curve does not have."""

    def read(self) -> bool:
        """Take in all predictions that have arrived. Returns whether there are any."""
        lines = self._lines()
        if not lines:
            return False
        predicted_curves = np.array(sorted(lines), int)
        reasons: Numbering[tuple[tuple[int, int], ...]] = Numbering()
        members = self._members()
        for curve, rows in members.items():
            lender = curve
            reason = -1
            if curve not in lines:
                differing = (self._codes[predicted_curves] != self._codes[curve]).sum(axis=1)
                lender = int(predicted_curves[np.argmin(differing)])
                changed = np.flatnonzero(self._codes[curve] != self._codes[lender])
                codes = self._codes[curve][changed]
                # If no choice that takes memory differs, the prediction counts as the curve's own.
                if len(changed):
                    reason = reasons[tuple(zip(changed.tolist(), codes.tolist(), strict=True))]
            sizes, sizes_bytes = lines[lender]
            self.log_bytes[rows] = np.log(_interpolated(sizes, sizes_bytes, self._sizes[rows]))
            self.borrow_reasons[rows] = reason
        return True

    def _lines(self) -> dict[int, tuple[Array, Array]]:
        """Curve -> its predicted micro-batches, ascending, and their bytes."""
        points: dict[int, dict[float, float]] = {}
        for row, trial_id in enumerate(self._trial_ids):
            predicted = self._predicted_bytes.get(trial_id)
            if predicted is not None:
                points.setdefault(int(self.curves[row]), {})[self._sizes[row]] = predicted
        lines = {}
        for curve, line in points.items():
            sizes = sorted(line)
            lines[curve] = (np.array(sizes), np.array([line[size] for size in sizes]))
        return lines

    def _members(self) -> dict[int, list[int]]:
        """Curve -> its candidates."""
        members: dict[int, list[int]] = {}
        for row, curve in enumerate(self.curves.tolist()):
            members.setdefault(curve, []).append(row)
        return members


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


def _codes(curves: Sequence[Curve]) -> Indices:
    """For each curve, the indices of its choices that affect memory, shape (curves, 1 + axes).

    Column 0 is the regime: everything else that is constant along a curve.
    """
    axes = sorted({axis for curve in curves for axis, _, _ in curve.techniques} - NO_DEVICE_MEMORY)
    numbers: Numbering[object] = Numbering()
    codes = np.zeros((len(curves), len(axes) + 1), int)
    for row, curve in enumerate(curves):
        choices = {axis: (kind, value) for axis, kind, value in curve.techniques}
        codes[row, 0] = numbers[curve.regime]
        for column, axis in enumerate(axes, start=1):
            codes[row, column] = numbers[axis, choices.get(axis)]
    return codes
