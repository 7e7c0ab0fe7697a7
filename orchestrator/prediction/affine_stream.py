"""Allocations and frees in the order they happen, as functions of the micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.kernels import FORMULAS


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """Memory taken: its size is ``FORMULAS[formula](gpu, *integers)`` bytes."""

    number: int
    formula: str
    integers: tuple[int, ...]
    kind: str
    """What it holds: "weights", "saved activations" ..., the words of ``jobs.anatomy.memory.kinds``."""
    once: str = ""
    """Name of something taken once in a process and kept: later allocations of it are none."""

    def nbytes(self, gpu: Gpu) -> int:
        """Bytes asked for, before the allocator rounds them."""
        return FORMULAS[self.formula](gpu, *self.integers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Free:
    """The allocation of this number is given back."""

    number: int


Event = Allocation | Free


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One part of a trial (the model being built, a micro-batch, an update), traced at one micro-batch."""

    events: tuple[Event, ...]
    samples: int = 0
    """Micro-batch it was traced at; 0: it does not depend on it."""
    kernels: frozenset[str] = frozenset()
    """Operators worth knowing of: attention kernels, collective experts."""


def between(low: Stream, high: Stream, samples: int) -> Stream | None:
    """The stream at another micro-batch: sizes are affine in it. None where the two do not have the same events."""
    if samples == low.samples:
        return low
    if samples == high.samples:
        return high
    if len(low.events) != len(high.events):
        return None
    events: list[Event] = []
    for first, second in zip(low.events, high.events, strict=True):
        if isinstance(first, Free) or isinstance(second, Free):
            if first != second:
                return None
            events.append(first)
            continue
        event = _affine(first, second, (samples - low.samples) / (high.samples - low.samples))
        if event is None:
            return None
        events.append(event)
    return Stream(events=tuple(events), samples=samples, kernels=low.kernels | high.kernels)


def _affine(low: Allocation, high: Allocation, position: float) -> Allocation | None:
    if (low.number, low.formula, len(low.integers)) != (
        high.number,
        high.formula,
        len(high.integers),
    ):
        return None
    if low.integers == high.integers:
        return low
    return Allocation(
        number=low.number,
        formula=low.formula,
        integers=_interpolated(low.integers, high.integers, position),
        kind=low.kind,
        once=low.once,
    )


def _interpolated(low: Sequence[int], high: Sequence[int], position: float) -> tuple[int, ...]:
    return tuple(round(a + (b - a) * position) for a, b in zip(low, high, strict=True))
