"""Predicted memory of every candidate of a plan, interpolated from predictions of a few."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from orchestrator.search.model.arrays import Array, Indices, Mask, Numbering, between
from orchestrator.search.model.candidates import Candidate, Curve
from orchestrator.search.model.cost_line import CostLine
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.search.model.memory.curve_choices import curve_choices

Lines = Mapping[int, CostLine]
"""Curve -> its predictions."""


class PredictedMemory:
    """Reads predictions, and fills in the missing ones.

    The memory of a curve is a base plus the memory of its samples, but at least a floor, and linear
    between predicted micro-batches. A curve without predictions transfers those of the predicted
    curve that differs in the fewest choices, with the expected effect of these choices. A choice
    that concerns the activations multiplies only the memory of the samples, without that of the
    loss: what it needs more than the smallest predicted loss of the same other choices.
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
        self._members = [np.flatnonzero(self.curves == curve) for curve in range(len(numbers))]
        """The candidates of each curve."""
        self._choices = curve_choices(list(numbers), priors)
        self._changed = np.full_like(self._choices.codes, -1)
        """Index of a curve's value where its donor has another one, -1 where it has not, shape
        (curves, axes)."""
        self.transfers: Mask = np.zeros(len(candidates), bool)
        """Whether a candidate's prediction is transferred, shape (candidates,)."""
        self._base_bytes = np.zeros(len(candidates))
        """Bytes that do not depend on the micro-batch, shape (candidates,)."""
        self._sample_bytes = np.ones(len(candidates))
        """Bytes that grow with the micro-batch, shape (candidates,)."""
        self._loss_bytes = np.zeros(len(candidates))
        """Bytes of the loss, which depend on no choice but the loss, shape (candidates,)."""
        self._floor_bytes = np.zeros(len(candidates))
        """The least that a micro-batch of the same model and optimizer was predicted to need."""

    def read(self) -> bool:
        """Take in all predictions that have arrived; whether there are any."""
        lines = self._lines()
        if not lines:
            return False
        predicted = np.array(sorted(lines), int)
        donors = [self._choices.donor(curve, predicted) for curve in range(len(self._members))]
        is_changed = self._choices.codes != self._choices.codes[donors]
        self._changed = np.where(is_changed, self._choices.codes, -1)
        self.transfers = is_changed.any(axis=1)[self.curves]
        self._interpolate(lines, donors, is_changed[:, self._choices.is_loss].any(axis=1))
        # Some choices change only the memory of the samples, the others all memory.
        change = self._choices.log_memory - self._choices.log_memory[donors]
        of_samples = change[:, self._choices.is_of_samples].sum(axis=1)[self.curves]
        of_all = change[:, ~self._choices.is_of_samples].sum(axis=1)[self.curves]
        self._sample_bytes *= np.exp(of_samples)
        for part in (self._sample_bytes, self._base_bytes, self._loss_bytes, self._floor_bytes):
            part *= np.exp(of_all)
        self._floor_bytes *= self.transfers
        return True

    def _interpolate(self, lines: Lines, donors: Sequence[int], has_another_loss: Mask) -> None:
        """Set the bytes of each candidate to those that were predicted for its donor."""
        floors = self._floors(lines)
        without_loss = self._without_loss(lines)
        for rows, donor, is_of_donor in zip(self._members, donors, ~has_another_loss, strict=True):
            line = without_loss[donor] if is_of_donor else lines[donor]
            line_bytes = line.at(self._sizes[rows])
            self._base_bytes[rows] = np.minimum(line.base, line_bytes)
            self._sample_bytes[rows] = line_bytes - self._base_bytes[rows]
            self._loss_bytes[rows] = lines[donor].at(self._sizes[rows]) - line_bytes
            self._floor_bytes[rows] = floors[donor]

    def log_bytes(self, sample_errors: Array | float = 0.0) -> Array:
        """Logarithms of predicted bytes; ``sample_errors`` are those of factors on the memory of
        the samples."""
        line = self._base_bytes + self._loss_bytes + self._sample_bytes * np.exp(sample_errors)
        return np.asarray(np.log(np.maximum(line, self._floor_bytes)))

    def loss_shares(self) -> Array:
        """The share of the loss in the memory of each candidate that transfers, otherwise 0."""
        line = self._base_bytes + self._loss_bytes + self._sample_bytes
        return np.asarray(self.transfers * self._loss_bytes / line)

    def sample_weights(self, sample_errors: Array | float = 0.0) -> Array:
        """The share of the samples in the memory, and so the derivative of ``log_bytes`` by the
        errors."""
        samples = self._sample_bytes * np.exp(sample_errors)
        return np.asarray(samples / (self._base_bytes + self._loss_bytes + samples))

    def covariance(self, rows: Indices, columns: Indices, *, of_samples: bool) -> Array:
        """Covariance of the errors of transferred predictions, shape (rows, columns):
        ``of_samples``, else of choices that change all memory. Two curves share the errors of the
        choices in which both differ from their donors."""
        return between(partial(self._shared, of_samples), self.curves, rows, columns)

    def variances(self, *, of_samples: bool) -> Array:
        """The diagonal of ``covariance`` for all candidates, shape (candidates,)."""
        return self._shared(of_samples, self.curves, self.curves)

    def _shared(self, of_samples: bool, left: Indices, right: Indices) -> Array:
        """Covariance of these errors between curves, in the shape to which both are broadcast."""
        covariance = np.zeros(np.broadcast_shapes(left.shape, right.shape))
        for axis in self._choices.axes(of_samples=of_samples):
            # The index -1 selects the appended zeros.
            changed = self._changed[:, axis]
            covariance += self._choices.covariances[axis][changed[left], changed[right]]
        return covariance

    def _without_loss(self, lines: Lines) -> Lines:
        """The predictions of each curve with the loss that needs the least, at its own sizes."""
        least = {}
        for group in self._choices.groups(lines, ~self._choices.is_loss):
            for curve in group:
                sizes = lines[curve].sizes
                least_bytes = np.min([lines[other].at(sizes) for other in group], axis=0)
                least[curve] = CostLine(sizes, least_bytes)
        return least

    def _floors(self, lines: Lines) -> Mapping[int, float]:
        """The smallest predicted bytes of curves with the same optimizer, whose step needs its
        memory."""
        floors: dict[int, float] = {}
        for group in self._choices.groups(lines, ~self._choices.is_of_samples):
            smallest = min(float(lines[curve].costs.min()) for curve in group)
            floors |= dict.fromkeys(group, smallest)
        return floors

    def _lines(self) -> Lines:
        """What has been predicted so far."""
        lines = {}
        for curve, rows in enumerate(self._members):
            by_size = {}
            for row in rows:
                predicted = self._predicted_bytes.get(self._trial_ids[row])
                if predicted is not None:
                    by_size[self._sizes[row]] = predicted
            # One micro-batch does not show how memory grows. It is used only if the curve has no
            # other.
            if by_size and (len(by_size) > 1 or len(np.unique(self._sizes[rows])) == 1):
                lines[curve] = CostLine.of(by_size)
        return lines
