"""Rows of unequal length: which steps of an epoch are measured, and what its mean step takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


class RaggedSteps:
    """A few steps that stand for all steps of an epoch.

    They are quantiles of the epoch's steps by their longest row, so equal effective batches train
    on the same rows. They are trained on in turn, again and again. The first turn is warm-up:
    whatever a new shape costs once (kernels that are loaded, tuned or compiled, memory that is
    reserved) is spent before the turn that counts.

    A step's seconds are modelled as a constant, plus a share for each position (a token or its
    padding), plus a share for each pair of positions of a row, none below zero. With this model the
    seconds of any step become those of the epoch's mean step. So configurations that train on
    different batches of the same rows compare.
    """

    def __init__(
        self,
        columns: Sequence[np.ndarray],
        sequences: Sequence[np.ndarray],
        *,
        micro_batch: int,
        accumulation: int,
        joins_rows: bool,
        warmup_steps: int,
        counted_steps: int | None,
    ) -> None:
        """``columns``: the tokens of each row, (rows,), in each column that sets a batch's shape;
        ``sequences``: those of the sequences that a row adds to a batch, whose tokens are counted.

        ``joins_rows``: the rows of a micro-batch are joined without padding. ``counted_steps``: at
        most so many, after ``warmup_steps`` at least; None: a whole epoch, in its own order.
        """
        self._columns = np.stack(columns)
        self._sequences = np.stack(sequences)
        self._shape = (accumulation, micro_batch)
        self._joins_rows = joins_rows
        self._counted_steps = counted_steps
        # The turns begin with the first step, and the first one is warm-up.
        self.warmup_steps: int = max(warmup_steps, self.distinct)
        # Both are set by ``rows``; the columns are those of ``_work``.
        self._epoch = np.ones((1, 4))
        self._measured = np.ones((1, 4))
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
        accumulation, micro_batch = self._shape
        effective_batch = accumulation * micro_batch
        # Three parameters are fitted to them. Steps of many rows differ less from each other.
        wanted = 6 if effective_batch < 16 else 4
        in_epoch: int = self._columns.shape[1] // effective_batch
        return min(wanted, self._counted_steps, in_epoch)

    def rows(self, epoch: Sequence[int]) -> list[int]:
        """The rows to train on, in order, of an epoch's rows in the order of its sampler."""
        size = self._shape[0] * self._shape[1]
        # A dataset may be repeated to last for all steps. Row numbers then go on increasing.
        full = np.asarray(epoch[: len(epoch) // size * size]) % self._columns.shape[1]
        steps = full.reshape(-1, *self._shape)
        if not len(steps):
            return list(epoch)
        self._epoch = self._work(steps)
        *_, positions, tokens = self._epoch.sum(axis=0)
        self.padding_share = float(1 - tokens / positions)
        if not self.distinct:
            return list(epoch)
        longest = self._columns[:, steps].max(axis=(0, 2, 3))
        by_length = np.lexsort((self._epoch[:, -1], longest))
        middles = (np.arange(self.distinct) + 0.5) / self.distinct
        quantiles = by_length[(middles * len(steps)).astype(int)].tolist()
        # The longest comes first, because memory that is reserved for it serves the others, and a
        # typical one ends the warm-up, where operators are inspected.
        turn: list[int] = []
        while quantiles:
            turn.append(quantiles.pop(-1 if len(turn) % 2 == 0 else 0))
        self._measured = self._epoch[turn]
        turns = math.ceil((self.warmup_steps + (self._counted_steps or 0)) / len(turn))
        rows: list[int] = np.tile(steps[turn].ravel(), turns).tolist()
        return rows

    def at_mean(self, seconds: Sequence[float], first: int) -> list[float]:
        """Seconds of consecutive steps, as if each were the epoch's mean step.

        ``first`` is the number of the first of these steps in the training. Their mean is the
        expected time, and their spread is what the model leaves unexplained.
        """
        if not self.distinct or len(seconds) < 3:
            return list(seconds)
        measured = np.asarray(seconds)
        work = self._measured[(first + np.arange(len(measured))) % len(self._measured)]
        terms = 2 if self.distinct > 3 else 1
        scale = self._epoch[:, :terms].mean(axis=0)
        known, whole = (_with_constant(part[:, :terms] / scale) for part in (work, self._epoch))
        shares = _positive_fit(known / measured[:, None])
        expected = float((whole @ shares).mean())
        # Each parameter takes a degree of freedom from the deviations, a mean takes one.
        freedom = max(1, len(measured) - int(np.count_nonzero(shares)))
        widened = math.sqrt((len(measured) - 1) / freedom)
        deviations = measured / (known @ shares) - 1
        at_mean: list[float] = (expected * (1 + widened * deviations)).tolist()
        return at_mean

    def lost_to_new_shapes(self, seconds: Sequence[float]) -> float:
        """By how much the steps of the first turn took longer than those of the second.

        Its first step does not count, which begins the training, nor its last, which is inspected.
        """
        turns = zip(seconds[: self.distinct], seconds[self.distinct :], strict=False)
        return sum(max(0.0, new - again) for new, again in list(turns)[1:-1])

    def expected_tokens(self, first: int, count: int) -> tuple[float, float]:
        """Positions and tokens of the mean step, each relative to those of ``count`` steps."""
        work = self._measured[(first + np.arange(count)) % len(self._measured)]
        if not self.distinct:
            return 1.0, 1.0
        *_, positions, tokens = self._epoch.mean(axis=0) / work.mean(axis=0)
        return float(positions), float(tokens)

    def _work(self, steps: np.ndarray) -> np.ndarray:
        """Work and its square, positions, and tokens of steps (steps, accumulation, rows)."""
        columns, tokens = self._columns[:, steps], self._sequences[:, steps]
        widths, positions = columns, tokens
        if not self._joins_rows:
            widths = np.broadcast_to(columns.max(axis=-1, keepdims=True), columns.shape)
            # Every sequence of a batch takes as many positions as the longest one.
            longest = tokens.max(axis=(0, -1), keepdims=True)
            positions = np.broadcast_to(longest, tokens.shape)
        parts = (widths, widths.astype(float) ** 2, positions, tokens)
        return np.stack([part.sum(axis=(0, 2, 3)) for part in parts], axis=-1).astype(float)


def _with_constant(values: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(values)), values])


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
