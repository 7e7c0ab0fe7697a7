"""Predicted memory for every candidate of a plan, from predictions of a few."""

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
    borrows those of the most similar curve that has some.
    """

    def __init__(
        self, candidates: Sequence[Candidate], predicted_bytes: Mapping[str, float]
    ) -> None:
        self._predicted_bytes = predicted_bytes
        self._trial_ids = [own.trial_ids[0] for own in candidates]
        self._sizes = np.array([own.micro_batch for own in candidates], float)
        numbers: Numbering[Curve] = Numbering()
        self.curves: Indices = np.array([numbers[own.curve] for own in candidates], int)
        """Number of each candidate's curve, optimizer included, shape (candidates,)."""
        self._codes = _codes(list(numbers))
        self.log_bytes: Array = np.zeros(len(candidates))
        """Logarithms of predicted bytes, shape (candidates,)."""
        self.lenders: Indices = np.full(len(candidates), -1)
        """A number for the reason why a prediction is borrowed; -1 where it is a candidate's own.

        The reason is the set of choices that the lender does not have."""

    def read(self) -> bool:
        """Take in the predictions that there are now. Returns whether there is any."""
        lines = self._lines()
        if not lines:
            return False
        lending = np.array(sorted(lines), int)
        reasons: Numbering[tuple[tuple[int, int], ...]] = Numbering()
        members = self._members()
        for curve, rows in members.items():
            lender = curve
            reason = -1
            if curve not in lines:
                differing = (self._codes[lending] != self._codes[curve]).sum(axis=1)
                lender = int(lending[np.argmin(differing)])
                changed = np.flatnonzero(self._codes[curve] != self._codes[lender])
                codes = self._codes[curve][changed]
                # Without a change that takes memory, the lender's prediction is its own.
                if len(changed):
                    reason = reasons[tuple(zip(changed.tolist(), codes.tolist(), strict=True))]
            sizes, sizes_bytes = lines[lender]
            self.log_bytes[rows] = np.log(_along(sizes, sizes_bytes, self._sizes[rows]))
            self.lenders[rows] = reason
        return True

    def _lines(self) -> dict[int, tuple[Array, Array]]:
        """Curve -> its predicted sizes, ascending, and their bytes."""
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


def _along(sizes: Array, sizes_bytes: Array, wanted: Array) -> Array:
    """Bytes at any micro-batch: straight lines between known sizes, and beyond the last two."""
    values = np.interp(wanted, sizes, sizes_bytes)
    if len(sizes) < 2:
        return np.asarray(values)
    slope = (sizes_bytes[-1] - sizes_bytes[-2]) / (sizes[-1] - sizes[-2])
    beyond = np.maximum(wanted - sizes[-1], 0.0)
    return np.asarray(values + slope * beyond)


def _codes(curves: Sequence[Curve]) -> Indices:
    """A number for each choice of each curve that takes memory, shape (curves, axes and regime)."""
    axes = sorted({axis for curve in curves for axis, _, _ in curve.techniques} - NO_DEVICE_MEMORY)
    numbers: Numbering[object] = Numbering()
    codes = np.zeros((len(curves), len(axes) + 1), int)
    for row, curve in enumerate(curves):
        choices = {axis: (kind, value) for axis, kind, value in curve.techniques}
        codes[row, 0] = numbers[curve.regime]
        for column, axis in enumerate(axes, start=1):
            codes[row, column] = numbers[axis, choices.get(axis)]
    return codes
