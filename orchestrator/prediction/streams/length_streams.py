"""Streams of batches of unequal length, traced at a few lengths: their sizes at every other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

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
    """The lengths to trace, so that the sizes at all ``wanted`` lengths follow.

    They are the points of the smallest grid that determines a polynomial of second degree, or all
    wanted ones if these are as few. With ``has_tiles``, the last length is the number of scored
    positions, which enter linearly, and few numbers go with a length, so that wanted ones are
    traced.
    """
    distinct = sorted(set(wanted))
    if has_tiles:
        return _independent(distinct)
    ends = [(min(own), max(own)) for own in zip(*distinct, strict=True)]
    units = [math.gcd(*own) for own in zip(*distinct, strict=True)]
    halves = [grid for grid in itertools.product(range(3), repeat=len(ends)) if sum(grid) <= 2]
    points = []
    for grid in halves:
        targets = [low + (high - low) * at // 2 for at, (low, high) in zip(grid, ends, strict=True)]
        points.append(tuple(map(_usual_length, targets, units)))
    points = sorted(set(points))
    # Rounding joins points if the lengths differ by little, and then they determine too few terms.
    for longest in reversed(distinct):
        if _rank(points) == _rank(points + distinct):
            break
        if _rank([*points, longest]) > _rank(points):
            points.append(longest)
    return distinct if len(distinct) <= len(points) else points


def _independent(distinct: Sequence[Lengths]) -> list[Lengths]:
    """Of these lengths, as many as determine all terms, and far apart."""
    usual = [own for own in distinct if _usual_length(own[0], 1) == own[0]] or distinct
    by_share = sorted(usual, key=lambda own: own[-1] / own[0])
    points: list[Lengths] = []
    for own in (usual[-1], usual[0], usual[len(usual) // 2], by_share[0], by_share[-1], *distinct):
        if not points or _rank([*points, own], True) > _rank(points, True):
            points.append(own)
    return points


def _rank(lengths: Sequence[Lengths], has_tiles: bool = False) -> int:
    """How many terms of a polynomial of second degree its values at these lengths determine."""
    longest = np.max(lengths, axis=0)
    return int(np.linalg.matrix_rank([_powers(own, longest, has_tiles) for own in lengths]))


def _usual_length(target: int, unit: int) -> int:
    """A length near ``target`` that runs the same kernels as most: attention copies a mask whose
    rows are no multiple of 16, so the length is odd unless all lengths are such multiples."""
    length = max(unit, target // unit * unit)
    return length if unit % 16 == 0 or length % 2 else max(1, length - 1)


def at_lengths(
    shapes: Sequence[Shape],
    of_shape: Callable[[Shape], BatchShapes],
    traced: Callable[[BatchShapes, int], MicroBatches],
    gpu: Gpu,
) -> Callable[[Sequence[Shape]], list[SizedStream]]:
    """A function from the micro-batches of a step to their streams, for all these shapes."""
    by_kind: dict[Kind, list[Shape]] = {}
    for shape in shapes:
        by_kind.setdefault(shape.kind, []).append(shape)
    streams = {}
    for kind, own in by_kind.items():
        has_tiles = kind[-1] > 0
        chosen = traced_lengths([shape.lengths for shape in own], has_tiles=has_tiles)
        batches = {each: of_shape(replace(own[0], lengths=each)) for each in chosen}
        traces = {each: traced(batch, own[0].rows) for each, batch in batches.items()}
        firsts = {each: first for each, (first, _) in traces.items()}
        laters = {each: later for each, (_, later) in traces.items() if later is not None}
        parts = [part for part in (firsts, laters) if part]
        streams[kind] = [LengthStreams(part, gpu, has_tiles=has_tiles) for part in parts]

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
