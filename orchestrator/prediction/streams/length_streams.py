"""Streams of batches of unequal length, traced at a few lengths: their sizes at every other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.analysis.grouping import grouped
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.kernel_memory import FORMULAS
from orchestrator.prediction.streams.affine_stream import Allocation, MicroBatches, Stream
from orchestrator.prediction.streams.sized_stream import SizedStream, steps_of

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.rows.batches import BatchShapes, Shape

Lengths = tuple[int, ...]
"""Positions along each kind of sequence of a batch: of the inputs, of the targets ..."""
Kind = tuple[int, bool, int]
"""Rows, whether some are padded, and tiles of scored positions (0: the loss has no tiles)."""
MANY_TILES = 4
"""So many or more tiles of a loss are traced as one, because each allocates what the first does."""


def traced_lengths(wanted: Sequence[Lengths], *, has_tiles: bool = False) -> list[Lengths]:
    """Of the ``wanted`` lengths as many as determine the sizes at all of them, and far apart.
    ``has_tiles``: the last length is the number of scored positions, which enter linearly."""
    from scipy.linalg import qr  # takes a tenth of a second to import

    distinct = sorted(set(wanted))
    longest = np.max(distinct, axis=0)
    terms = np.array([_powers(own, longest, has_tiles) for own in distinct])
    # Attention copies a mask whose rows are no multiple of 16, so most lengths run other kernels.
    sequences = np.array(distinct)[:, : -1 if has_tiles else None]
    usual = np.all(sequences % 2 > 0, axis=1)
    rank = np.linalg.matrix_rank(terms)
    if np.linalg.matrix_rank(terms * usual[:, None]) == rank:
        terms = terms * usual[:, None]
    *_, order = qr(terms.T, mode="economic", pivoting=True)
    return sorted(distinct[own] for own in order[:rank])


def at_lengths(
    shapes: Sequence[Shape],
    of_shape: Callable[[Shape], BatchShapes],
    traced: Callable[[BatchShapes, int], MicroBatches],
    gpu: Gpu,
) -> Callable[[Sequence[Shape]], list[SizedStream]]:
    """A function from the micro-batches of a step to their streams, for all these shapes."""
    streams = {}
    for kind, own in grouped(shapes, attrgetter("kind")).items():
        has_tiles = kind[-1] > 0
        chosen = traced_lengths([shape.lengths for shape in own], has_tiles=has_tiles)
        batches = (of_shape(replace(own[0], lengths=each)) for each in chosen)
        traces = [traced(batch, own[0].rows) for batch in batches]
        # The first micro-batches, and the later ones where a step has them.
        parts = (part for part in zip(*traces, strict=True) if None not in part)
        streams[kind] = [
            LengthStreams(dict(zip(chosen, part, strict=True)), gpu, has_tiles=has_tiles)
            for part in parts
        ]

    def micro_batches(step: Sequence[Shape]) -> list[SizedStream]:
        return [streams[own.kind][number > 0].at(own.lengths) for number, own in enumerate(step)]

    return micro_batches


class LengthStreams:
    """A stream at any lengths, from its traces at a few.

    A batch has tensors with a value for each position, and others with one for each pair of
    positions. So sizes are polynomials of second degree in the lengths.
    """

    def __init__(
        self, traces: Mapping[Lengths, Stream], gpu: Gpu, *, has_tiles: bool = False
    ) -> None:
        self._traces = traces
        self._gpu = gpu
        self._has_tiles = has_tiles
        self._longest = np.max([*traces], axis=0)
        self._sized: dict[Lengths, SizedStream] = {}
        self._events = next(iter(traces.values())).events
        self._steps = steps_of(self._events)
        self._is_polynomial = len({_kinds(own) for own in traces.values()}) == 1
        if self._is_polynomial:
            self._fit()

    def _fit(self) -> None:
        """Find the polynomials, and which of the events have sizes to compute."""
        # Each row has the integers of one allocation after the other.
        known = np.array([_integers(own) for own in self._traces.values()], float)
        powers = np.array([_powers(own, self._longest, self._has_tiles) for own in self._traces])
        self._coefficients = np.linalg.lstsq(powers, known, rcond=None)[0]
        # The integers of each allocation; that of a tensor is its size.
        ends = itertools.accumulate(len(getattr(own, "integers", ())) for own in self._events)
        begins = [0, *ends]
        integers = list(itertools.starmap(slice, itertools.pairwise(begins)))
        formulas = [getattr(own, "formula", "") for own in self._events]
        self._others = [
            own
            for own in zip(itertools.count(), formulas, integers, strict=False)
            if own[1] not in ("", "tensor")
        ]
        self._tensors = np.array([own == "tensor" for own in formulas])
        self._begins = np.array(begins[:-1])[self._tensors]

    def at(self, lengths: Lengths) -> SizedStream:
        """The stream of a batch of these lengths. If the traces differ in more than sizes, the next
        longer one stands for it, or the longest."""
        if lengths not in self._sized:
            if self._is_polynomial and lengths not in self._traces:
                self._sized[lengths] = self._between(lengths)
            else:
                longer = [own for own in self._traces if np.all(np.greater_equal(own, lengths))]
                near = min(longer, key=math.prod) if longer else max(self._traces, key=math.prod)
                chosen = self._traces[near]
                self._sized[lengths] = SizedStream.of(chosen, self._gpu)
        return self._sized[lengths]

    def _between(self, lengths: Lengths) -> SizedStream:
        # Rounded, because a size is a whole number of bytes or elements.
        powers = _powers(lengths, self._longest, self._has_tiles)
        values = np.rint(powers @ self._coefficients).astype(int)
        found = np.zeros(len(self._events), int)
        found[self._tensors] = values[self._begins]
        sizes: list[int] = found.tolist()
        for number, formula, integers in self._others:
            sizes[number] = FORMULAS[formula](self._gpu, *values[integers].tolist())
        return SizedStream(self._steps, sizes)


def _powers(lengths: Lengths, longest: np.ndarray, has_tiles: bool = False) -> np.ndarray:
    """1, each length, and the product of each two but scored positions; relative to the longest
    traced ones."""
    shares = [1.0, *(np.array(lengths) / longest)]
    scored = [shares.pop()] if has_tiles else []
    pairs = itertools.combinations_with_replacement(shares, 2)
    return np.array([*(one * other for one, other in pairs), *scored])


def _kinds(stream: Stream) -> tuple[tuple[int, str, int], ...]:
    """What must be equal in all traces: numbers, formulas, and how many integers they take."""
    kinds = []
    for event in stream.events:
        if isinstance(event, Allocation):
            kinds.append((event.number, event.formula, len(event.integers)))
        else:
            kinds.append((event.number, "", 0))
    return tuple(kinds)


def _integers(stream: Stream) -> list[int]:
    allocations = (event for event in stream.events if isinstance(event, Allocation))
    return [value for own in allocations for value in own.integers]
