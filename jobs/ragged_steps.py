"""Rows of unequal length: which steps of an epoch are measured, and what its mean step takes."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from jobs.steady_state import student_t95

NEW_SHAPE_SPREAD = 0.25
"""The usual standard deviation of what a new shape costs, as a share of it: that of the first turns
of a 1.2 B decoder and of BERT-large on an H100, 2026-11-27."""


TURN = 4
"""Different steps that are trained on, again and again, if there are so many: three parameters are
fitted to them. More steps cost more time, and hit the kink of a time that the host bounds from
below no better."""
OTHERS = 1
"""Steps before the first turn."""
LOAD = 3
"""What takes this many times as long as the step itself, and as the cheapest new shape, is loaded
or compiled once. Such loads took 1.4 to 2.2 s, and new shapes 0.05 to 0.35 s."""


class RaggedSteps:
    """A few steps that stand for all steps of an epoch.

    They are quantiles of the epoch's steps by their longest row, so equal effective batches train
    on the same rows::

        another │ the quantiles │ the quantiles again, and again
        ────────┼───────────────┼───────────────────────────────
        warm-up │ warm-up       │ these count

    The first step spends what is loaded or compiled once for all lengths. In the first turn of the
    quantiles each is a new length, and in the next turns it is known.

    A step's seconds are modelled as a constant, plus a share for each position (a token or its
    padding), plus a share for each pair of positions of a row, none below zero. With this model the
    seconds of any step become those of the epoch's mean step. So configurations that train on
    different batches of the same rows compare. An epoch also meets lengths for the first time, and
    some kernels are prepared for each. So each shape of the epoch adds once what the steps of the
    first turn took longer than the same steps in the second.
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        sequences: Sequence[np.ndarray],
        *,
        micro_batch: int,
        accumulation: int,
        joins_rows: bool,
        pad_to_multiple_of: int = 1,
        warmup_steps: int,
        counted_steps: int | None,
        samples: Sequence[int] | None = None,
    ) -> None:
        """``columns``: the tokens of each row, (rows,), in each column that sets a batch's shape;
        ``sequences``: those of the sequences that a row adds to a batch, whose tokens are counted.

        ``joins_rows``: a micro-batch's rows are joined without padding; otherwise they are padded
        to the longest, and to the next ``pad_to_multiple_of`` positions. ``counted_steps``: at
        most so many, after ``warmup_steps`` at least; None: a whole epoch, in its own order.
        ``samples``: those of each row, (rows,), as of a block; None: each is one.
        """
        self._columns = np.stack(columns)
        self._sequences = np.stack(sequences)
        self._samples = np.ones(self._columns.shape[1]) if samples is None else np.asarray(samples)
        self._shape = (accumulation, micro_batch)
        self._joins_rows = joins_rows
        self._multiple = pad_to_multiple_of
        self._counted_steps = counted_steps
        self._others = OTHERS if self.distinct else 0
        self.warmup_steps: int = max(warmup_steps, self._others + self.distinct)
        # These are set by ``rows``; the columns are those of ``_work``.
        self.mean_step = np.ones(5)
        """Of an epoch: widths of rows, their squares, positions, tokens, samples, shape (5,)."""
        self._measured = np.ones((1, 5))
        self._new_shapes: list[int] = []
        """In each step of the first turn."""
        self.new_shapes_of_mean_step = 0.0
        self.padding_share = 0.0
        """The share of positions that are padding in the epoch's batches."""

    @property
    def longest_row(self) -> int:
        """Tokens of the longest sequence."""
        return int(self._sequences.max())

    @property
    def mean_row(self) -> float:
        """Mean tokens of a sequence."""
        return float(self._sequences.mean())

    @property
    def distinct(self) -> int:
        """How many steps are chosen if an epoch has enough; 0 for a whole epoch."""
        if self._counted_steps is None:
            return 0
        in_epoch: int = self._columns.shape[1] // math.prod(self._shape)
        return min(TURN, self._counted_steps, in_epoch)

    def rows(self, epoch: Sequence[int]) -> list[int]:
        """The rows to train on, in order, of an epoch's rows in the order of its sampler."""
        size = self._shape[0] * self._shape[1]
        # A dataset may be repeated to last for all steps. Row numbers then go on increasing.
        full = np.asarray(epoch[: len(epoch) // size * size]) % self._columns.shape[1]
        steps = full.reshape(-1, *self._shape)
        if not len(steps):
            return list(epoch)
        work = self._work(steps)
        self.mean_step = work.mean(axis=0)
        *_, positions, tokens, _ = self.mean_step
        self.padding_share = float(1 - tokens / positions)
        self.new_shapes_of_mean_step = _distinct(self.shapes(self._columns[:, steps])) / len(steps)
        if not self.distinct:
            return list(epoch)
        return steps[self._chosen(self._columns[:, steps], work)].ravel().tolist()

    def _chosen(self, lengths: np.ndarray, work: np.ndarray) -> list[int]:
        """The numbers of the steps to train on, in order, by the ``lengths`` of their rows."""
        by_length = np.lexsort((work[:, 3], self.shapes(lengths).max(axis=(0, 2))))
        others = _from_outside_in(_quantiles(by_length, self._others))
        turn = _from_outside_in(_quantiles(by_length, self.distinct))
        self._measured = work[turn]
        # New shapes of each step of the first turn after the others.
        shapes = self.shapes(lengths)
        met = [_distinct(shapes[:, [*others, *turn[:end]]]) for end in range(len(turn) + 1)]
        self._new_shapes = np.diff(met).tolist()
        turns = math.ceil((self.warmup_steps + (self._counted_steps or 0)) / len(turn))
        return [*others, *turn * turns]

    def at_mean(self, seconds: Sequence[float], first: int) -> list[float]:
        """Seconds of consecutive steps, as if each were the epoch's mean step. ``first`` is the
        number of the first of these steps in the training. Their mean is the expected time, and
        their spread is what the model leaves unexplained."""
        if not self.distinct or len(seconds) < 3:
            return list(seconds)
        measured = np.asarray(seconds)
        work = self._work_of(first, len(measured))
        terms = 2 if self.distinct > 3 else 1
        # The mean step has one of each: the constant, and work relative to its own.
        relative = work[:, :terms] / self.mean_step[:terms]
        known = np.column_stack([np.ones(len(relative)), relative])
        shares = _positive_fit(known / measured[:, None])
        expected = float(shares.sum())
        # Each parameter takes a degree of freedom from the deviations, a mean takes one.
        freedom = max(1, len(measured) - int(np.count_nonzero(shares)))
        widened = math.sqrt((len(measured) - 1) / freedom)
        deviations = measured / (known @ shares) - 1
        return (expected * (1 + widened * deviations)).tolist()

    def new_shapes(self, seconds: Sequence[float]) -> tuple[float, float]:
        """Seconds that the epoch's mean step spends on new shapes, and half their 95 % interval.
        ``seconds`` are of all steps from the first on."""
        first = seconds[self._others :]
        turns = zip(self._new_shapes, first, first[self.distinct :], strict=False)
        known = [((new - again) / shapes, again) for shapes, new, again in turns if shapes]
        if not known:
            return 0.0, 0.0
        # What is loaded once for many lengths is no price of a single one, nor is the inspection of
        # the first turn's last step.
        most = LOAD * max(min(known)[0], max(again for _, again in known))
        each = [price for price, _ in known if price <= most]
        price = max(0.0, statistics.median_low(each))
        # Such a load only adds to a price, so the prices below the median show the spread of both
        # halves.
        deviations = 2 * sum(min(value - price, 0.0) ** 2 for value in each)
        # As for steps: the prior has one degree of freedom.
        variance = ((NEW_SHAPE_SPREAD * price) ** 2 + deviations) / len(each)
        half_width = student_t95(len(each)) * math.sqrt(variance / len(each))
        return price * self.new_shapes_of_mean_step, half_width * self.new_shapes_of_mean_step

    def expected(self, first: int, count: int) -> tuple[float, float, float]:
        """Positions, tokens and samples of the mean step, relative to those of ``count`` steps."""
        if not self.distinct:
            return 1.0, 1.0, 1.0
        work = self._work_of(first, count)
        *_, positions, tokens, samples = (self.mean_step / work.mean(axis=0)).tolist()
        return positions, tokens, samples

    def _work_of(self, first: int, count: int) -> np.ndarray:
        """Work of ``count`` trained steps from the one with the number ``first`` on."""
        numbers = first - self._others + np.arange(count)
        return self._measured[numbers % len(self._measured)]

    def shapes(self, lengths: np.ndarray) -> np.ndarray:
        """Positions along each sequence of a batch (sequences, steps, accumulation). ``lengths``
        are tokens of the rows (sequences, steps, accumulation, rows)."""
        if self._joins_rows:
            return np.asarray(lengths.sum(axis=-1))
        return np.asarray(-(-lengths.max(axis=-1) // self._multiple) * self._multiple)

    def _work(self, steps: np.ndarray) -> np.ndarray:
        """Work, its square, positions, tokens, samples of steps (steps, accumulation, rows)."""
        columns, tokens = self._columns[:, steps], self._sequences[:, steps]
        widths, positions = columns, tokens
        if not self._joins_rows:
            widths = np.broadcast_to(self.shapes(columns)[..., None], columns.shape)
            # Every sequence of a batch takes as many positions as the longest one.
            longest = self.shapes(tokens).max(axis=0)[..., None]
            positions = np.broadcast_to(longest, tokens.shape)
        samples = self._samples[None, steps]
        parts = (widths, widths.astype(float) ** 2, positions, tokens, samples)
        return np.stack([part.sum(axis=(0, 2, 3)) for part in parts], axis=-1).astype(float)


def _quantiles(ordered: np.ndarray, count: int) -> list[int]:
    """The middles of ``count`` equal parts."""
    middles = (np.arange(count) + 0.5) / max(1, count)
    return ordered[(middles * len(ordered)).astype(int)].tolist()


def _from_outside_in(ordered: list[int]) -> list[int]:
    """Last, first, last but one ... The longest comes first: what it reserves serves the others. A
    typical one comes last, where the warm-up ends and operators are inspected."""
    inwards = list(ordered)
    return [inwards.pop(-1 if number % 2 == 0 else 0) for number in range(len(ordered))]


def _distinct(shapes: np.ndarray) -> int:
    """How many different micro-batches there are in (sequences, steps, accumulation)."""
    return int(np.unique(shapes.reshape(len(shapes), -1), axis=1).shape[1])


def _positive_fit(relative: np.ndarray) -> np.ndarray:
    """Shares, none below zero, with which the columns of (steps, shares) add up to about one."""
    kept = list(range(relative.shape[1]))
    shares = np.zeros(len(kept))
    while True:
        fitted = np.linalg.lstsq(relative[:, kept], np.ones(len(relative)), rcond=None)[0]
        if (fitted >= 0).all():
            shares[kept] = fitted
            return shares
        kept.pop(int(fitted.argmin()))
