"""Predicted memory of every candidate of a plan, interpolated from predictions of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering
from orchestrator.search.model.candidates import Candidate, Curve
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.memory.memory_line import MemoryLine

LOSS = "loss"
Lines = Mapping[int, MemoryLine]
"""Curve -> its predictions."""
_OF_ACTIVATIONS = frozenset(
    ("activations", "attention", "batching", "compile", "experts", "kernels", "loss")
)
"""Axes that change the memory of the samples, and not that of weights and optimizer states."""


class PredictedMemory:
    """Reads predictions, and fills in the missing ones.

    The memory of a curve is a base plus the memory of its samples, but at least a floor. Between
    two predicted micro-batches it is interpolated linearly. A curve without predictions borrows
    those of the predicted curve that differs in the fewest choices, with the expected effect of
    these choices. The effect of a choice that concerns the activations multiplies only the memory
    of the samples, without the memory of the loss: what it needs more than the smallest predicted
    loss of the same other choices.
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
        self.curves = numbers.of(candidate.curve.of_memory for candidate in candidates)
        """Index of each candidate's curve, with its optimizer, but without data loader and loop.

        Shape (candidates,)."""
        self._codes, values = _codes(list(numbers))
        self._members = [np.flatnonzero(self.curves == curve) for curve in range(len(numbers))]
        """The candidates of each curve."""
        self.borrows: Mask = np.zeros(len(candidates), bool)
        """Whether a candidate's prediction is borrowed, shape (candidates,)."""
        self._changed: Indices = np.full(self._codes.shape, -1)
        """Index of a curve's value on an axis where its lender has another one; -1 where it has
        not.

        Shape (curves, axes)."""
        self._effects = [_MemoryEffects(axis, listed, priors) for axis, listed in values]
        self._base_bytes = np.zeros(len(candidates))
        """Bytes that do not depend on the micro-batch, shape (candidates,)."""
        self._sample_bytes = np.ones(len(candidates))
        """Bytes that grow with the micro-batch, shape (candidates,)."""
        self._loss_bytes = np.zeros(len(candidates))
        """Bytes of the loss, which depend on no choice but the loss, shape (candidates,)."""
        self._floor_bytes = np.zeros(len(candidates))
        """The least that a micro-batch of the same model and optimizer was predicted to need."""

    def read(self) -> bool:
        """Take in all predictions that have arrived. Returns whether there are any."""
        lines = self._lines()
        if not lines:
            return False
        predicted_curves = np.array(sorted(lines), int)
        floors = self._floors(lines)
        without_loss = self._without_loss(lines)
        for curve, rows in enumerate(self._members):
            lender = curve
            if curve not in lines:
                lender = self._lender(curve, predicted_curves)
            of_samples, of_all = np.exp(self._change(curve, lender))
            line = lines[lender]
            if not self._changes_loss(curve):
                line = without_loss[lender]
            line_bytes = line.at(self._sizes[rows])
            base = np.minimum(line.base, line_bytes)
            loss = lines[lender].at(self._sizes[rows]) - line_bytes
            self._loss_bytes[rows] = loss * of_all
            self._base_bytes[rows] = base * of_all
            self._sample_bytes[rows] = (line_bytes - base) * of_samples * of_all
            # If no choice that affects memory differs, the prediction counts as the curve's own.
            borrows = bool((self._changed[curve] >= 0).any())
            self.borrows[rows] = borrows
            self._floor_bytes[rows] = borrows * floors[self._without_samples(lender)] * of_all
        return True

    def log_bytes(self, sample_errors: Array | float = 0.0) -> Array:
        """Logarithms of predicted bytes, shape (candidates,).

        ``sample_errors`` are logarithms of factors on the memory of the samples, of the same shape.
        """
        line = self._base_bytes + self._loss_bytes + self._sample_bytes * np.exp(sample_errors)
        return np.asarray(np.log(np.maximum(line, self._floor_bytes)))

    def loss_shares(self) -> Array:
        """The share of the loss in the memory of each candidate that borrows, otherwise 0."""
        line = self._base_bytes + self._loss_bytes + self._sample_bytes
        return np.asarray(self.borrows * self._loss_bytes / line)

    def sample_weights(self, sample_errors: Array | float = 0.0) -> Array:
        """The share of the samples in the memory of each candidate, shape (candidates,).

        It is the derivative of ``log_bytes`` by the errors, above the floor.
        """
        samples = self._sample_bytes * np.exp(sample_errors)
        return np.asarray(samples / (self._base_bytes + self._loss_bytes + samples))

    def sample_covariance(self, rows: Indices, columns: Indices) -> Array:
        """Covariance of the errors of borrowed sample memories, shape (rows, columns).

        Two curves share the errors of the choices in which both differ from their lenders.
        """
        return self._covariance(rows, columns, of_samples=True)

    def base_covariance(self, rows: Indices, columns: Indices) -> Array:
        """The same of the errors that choices such as the optimizer cause in all memory."""
        return self._covariance(rows, columns, of_samples=False)

    def sample_variances(self) -> Array:
        """The diagonal of ``sample_covariance`` for all candidates."""
        return self._variances(of_samples=True)

    def base_variances(self) -> Array:
        """The diagonal of ``base_covariance`` for all candidates."""
        return self._variances(of_samples=False)

    def _covariance(self, rows: Indices, columns: Indices, *, of_samples: bool) -> Array:
        curves, row_numbers = np.unique(self.curves[rows], return_inverse=True)
        others, column_numbers = np.unique(self.curves[columns], return_inverse=True)
        covariance = np.zeros((len(curves), len(others)))
        for axis, effects in enumerate(self._effects):
            if effects.is_of_samples == of_samples:
                left, right = self._changed[curves, axis], self._changed[others, axis]
                # The index -1 selects the appended zeros.
                covariance += effects.covariance[left[:, None], right]
        return np.asarray(covariance[row_numbers][:, column_numbers])

    def _variances(self, *, of_samples: bool) -> Array:
        variances = np.zeros(len(self._changed))
        for axis, effects in enumerate(self._effects):
            if effects.is_of_samples == of_samples:
                variances += np.diag(effects.covariance)[self._changed[:, axis]]
        return np.asarray(variances[self.curves])

    def _lender(self, curve: int, predicted_curves: Indices) -> int:
        """The predicted curve that differs from a curve in the fewest choices.

        Of several, it is the one with the most defaults: recorded effects are those of changes from
        the default.
        """
        differs = self._codes[predicted_curves] != self._codes[curve]
        is_default = np.zeros(differs.shape, bool)
        for axis, effects in enumerate(self._effects):
            is_default[:, axis] = effects.is_default[self._codes[predicted_curves, axis]]
        # The count of differing choices decides; a share of one axis breaks ties.
        cost = differs.sum(axis=1) - is_default.mean(axis=1) / 2
        return int(predicted_curves[np.argmin(cost)])

    def _change(self, curve: int, lender: int) -> tuple[float, float]:
        """Set ``_changed`` of a curve. Returns the expected changes of the logarithm of bytes.

        First that of the memory of the samples, then that of all memory.
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
                    of_samples += change
                else:
                    of_all += change
        return of_samples, of_all

    def _changes_loss(self, curve: int) -> bool:
        """Whether a curve has another loss than its lender."""
        return any(
            effects.axis == LOSS and self._changed[curve, axis] >= 0
            for axis, effects in enumerate(self._effects)
        )

    def _without_loss(self, lines: Lines) -> Lines:
        """The predictions of each curve with the loss that needs the least, at its own sizes."""
        others = [axis for axis, effects in enumerate(self._effects) if effects.axis != LOSS]
        groups: dict[tuple[int, ...], list[int]] = {}
        for curve in lines:
            groups.setdefault(tuple(self._codes[curve, others].tolist()), []).append(curve)
        least = {}
        for group in groups.values():
            for curve in group:
                sizes = lines[curve].sizes
                least_bytes = np.min([lines[other].at(sizes) for other in group], axis=0)
                least[curve] = MemoryLine(sizes, least_bytes)
        return least

    def _without_samples(self, curve: int) -> tuple[int, ...]:
        """The choices of a curve that change more than the memory of its samples."""
        kept = [axis for axis, effects in enumerate(self._effects) if not effects.is_of_samples]
        return tuple(self._codes[curve, kept].tolist())

    def _floors(self, lines: Lines) -> Mapping[tuple[int, ...], float]:
        """The smallest predicted bytes for each set of choices of ``_without_samples``.

        The optimizer's step needs its memory, however little the samples need.
        """
        floors: dict[tuple[int, ...], float] = {}
        for curve, line in lines.items():
            key = self._without_samples(curve)
            floors[key] = min(floors.get(key, np.inf), float(line.sizes_bytes.min()))
        return floors

    def _lines(self) -> Lines:
        """What has been predicted so far."""
        points: dict[int, dict[float, float]] = {}
        for row, trial_id in enumerate(self._trial_ids):
            predicted = self._predicted_bytes.get(trial_id)
            if predicted is not None:
                points.setdefault(int(self.curves[row]), {})[self._sizes[row]] = predicted
        lines = {}
        for curve, line in points.items():
            # One micro-batch does not show how memory grows. It is used only if the curve has no
            # other.
            if len(line) < 2 <= len(np.unique(self._sizes[self._members[curve]])):
                continue
            sizes = sorted(line)
            lines[curve] = MemoryLine(np.array(sizes), np.array([line[size] for size in sizes]))
        return lines


class _MemoryEffects:
    """The expected effects on memory of the values of one axis, and their covariance."""

    def __init__(self, axis: str, values: Sequence[Choice], priors: TechniquePriors) -> None:
        effects = [priors.of(axis, value) for value in values]
        self.axis = axis
        default = AXES[axis].default if axis in AXES else None
        self.is_default: Mask = np.array([value == default for value in values], bool)
        self.is_of_samples = axis in _OF_ACTIVATIONS
        """Whether the values change only the memory that grows with the micro-batch."""
        expected = [(effect.log_memory, effect.memory_deviation) for effect in effects]
        if self.is_of_samples:
            expected = [effect.of_sample() for effect in effects]
        self.log_memory = np.array([mean for mean, _ in expected])
        """Expected logarithms of the factors on the memory, shape (values,)."""
        deviations = np.array([deviation for _, deviation in expected])
        # The default has no deviation, but a change from another value to the default has one.
        deviations = np.where(deviations > 0, deviations, deviations.max(initial=0.0))
        rows = []
        for first in values:
            rows.append([priors.correlation(axis, first, second) for second in values])
        count = len(values)
        self.covariance = np.zeros((count + 1, count + 1))
        """Shape (values + 1, values + 1). The last row and column are zeros: no change."""
        self.covariance[:count, :count] = np.outer(deviations, deviations) * np.array(rows)


def _codes(curves: Sequence[Curve]) -> tuple[Indices, list[tuple[str, list[Choice]]]]:
    """For each curve, the indices of its choices, shape (curves, 1 + axes).

    Also the name of each axis, and its values in the order of their indices. Column 0 is the
    regime, which is constant along a curve; its name is "".
    """
    axes = sorted({axis for curve in curves for axis, _, _ in curve.techniques})
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
