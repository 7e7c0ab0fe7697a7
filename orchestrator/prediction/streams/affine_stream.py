"""Allocations and frees in the order they happen, as functions of the micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.kernel_memory import FORMULAS
from orchestrator.prediction.time.step_work import PartWork

SAVED = "saved activations"
"""Kind of what a forward pass leaves in memory."""
NEEDS_AMPERE = "attention that older GPUs do without a fused kernel"
"""Among the kernels of a stream: a GPU below capability 8.0 would keep all scores of attention."""

FLASH = "flash-attn"
"""Among the kernels of a stream: attention that was traced by another's kernel."""
EVEN_ROUTING = "experts, each with as many tokens"
"""Among the kernels of a stream: how many tokens an expert gets was not known."""


# Tuples, because they are made several times as fast as dataclasses, and there are many.
class Allocation(NamedTuple):
    """Memory taken: its size is ``FORMULAS[formula](gpu, *integers)`` bytes."""

    number: int
    formula: str
    integers: tuple[int, ...]
    kind: str
    """What it holds: "weights", "saved activations" ...; see ``jobs.anatomy.memory.ledger``."""
    once: str = ""
    """Name of what a process takes once and keeps: later allocations of this name are none."""
    cuda_stream: int = 0
    """What one CUDA stream gives back is not given to another. 0: the one that computes."""

    def nbytes(self, gpu: Gpu) -> int:
        """Bytes asked for, before the allocator rounds them."""
        return FORMULAS[self.formula](gpu, *self.integers)

    def shrunk(self, share: float) -> Allocation:
        """A tensor of a share of its bytes."""
        return self._replace(integers=(max(1, round(self.integers[0] * share)),))


class Free(NamedTuple):
    """The allocation of this number is given back."""

    number: int


Event = Allocation | Free


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One part of a trial: building the model, a micro-batch, or an update."""

    events: tuple[Event, ...]
    samples: float = 0
    """Micro-batch at which the stream was traced; 0 if it does not depend on the micro-batch."""
    kernels: frozenset[str] = frozenset()
    """Libraries and kernels that ran: "cudnn", "flash" ..."""
    work: PartWork = field(default_factory=PartWork, compare=False)

    @property
    def saved_bytes(self) -> int:
        """Bytes of activations that the forward pass keeps for the backward pass."""
        taken = (own for own in self.events if isinstance(own, Allocation))
        return sum(own.integers[0] for own in taken if own.kind == SAVED)

    def compiled(self, kept: float) -> Stream:
        """The same part if it is compiled: saved activations shrink to the share ``kept``. Logits
        that no kernel writes take no memory, but those that they are computed from live as long."""
        events: list[Event] = []
        away: set[int] = set()
        waiting: Counter[int] = Counter()
        """Allocation -> how many that are computed from it still live."""
        freed: set[int] = set()
        for own in self.events:
            sources = self.work.unwritten.get(own.number, ())
            if isinstance(own, Allocation):
                if own.kind == "logits" and sources:
                    away.add(own.number)
                    waiting.update(sources)
                    continue
                events.append(own.shrunk(kept) if own.kind == SAVED else own)
            elif own.number in away:
                waiting.subtract(sources)
                events += [Free(number=source) for source in freed if not waiting[source]]
                freed = {source for source in freed if waiting[source]}
            elif waiting[own.number]:
                freed.add(own.number)
            else:
                events.append(own)
        return replace(self, events=tuple(events))


MicroBatches = tuple[Stream, Stream | None]
"""The traces of one batch: as the first of a step, which finds no gradients in memory, and as any
later one, which adds to the gradients. Without accumulation there is no later one."""


def compiled(micro_batches: MicroBatches, kept: float) -> MicroBatches:
    """``Stream.compiled`` of both; the same if nothing is compiled, where ``kept`` is 0."""
    first, later = micro_batches
    return (first.compiled(kept), later and later.compiled(kept)) if kept else micro_batches


def between(low: Stream, high: Stream, samples: float) -> Stream | None:
    """The stream at a micro-batch, whose sizes are affine in it; None if the events differ."""
    if samples == low.samples:
        return low
    if samples == high.samples:
        return high
    if len(low.events) != len(high.events):
        return None
    # Sizes of tensors are affine in the micro-batch: 0 is the low trace, 1 the high one.
    position = (samples - low.samples) / (high.samples - low.samples)
    pairs = zip(low.events, high.events, strict=True)
    found = [_between_events(low_event, high_event, position) for low_event, high_event in pairs]
    events = tuple(event for event in found if event is not None)
    if len(events) < len(found):
        return None
    kernels = low.kernels | high.kernels
    return Stream(
        events=events, samples=samples, kernels=kernels, work=low.work.towards(high.work, position)
    )


def micro_batches_between(
    low: MicroBatches, high: MicroBatches, samples: float
) -> MicroBatches | None:
    """The streams between two traces; None if the traces do not have the same events."""
    has_later = low[1] is not None and high[1] is not None
    first = between(low[0], high[0], samples)
    later = between(low[1], high[1], samples) if low[1] and high[1] else None
    return None if first is None or (has_later and later is None) else (first, later)


class Interpolation:
    """Micro-batches between others, each interpolated once."""

    def __init__(self, sizes: Sequence[int], traced: Callable[[int], MicroBatches]) -> None:
        """``sizes``: in ascending order; the first and the last are traced."""
        self._sizes = sizes[1:-1]
        self._traced = traced
        self._found: dict[int, MicroBatches | None] = {}
        self._ends = {sizes[0], sizes[-1]}
        """What is interpolated between: the smallest, the largest, and any between whose trace was
        another, as where the last tile of a loss is smaller than a whole one."""
        self._compared: set[tuple[int, int]] = set()
        """Pairs of ends between which a trace was as interpolated."""

    def at(self, samples: int) -> MicroBatches | None:
        """None if this micro-batch is to be traced."""
        if samples in self._sizes and samples not in self._found:
            self._found[samples] = self._interpolated(samples)
        return self._found.get(samples)

    def _interpolated(self, samples: int) -> MicroBatches | None:
        """Ends whose kernels differ are compared with a trace."""
        ends = (
            max(own for own in self._ends if own <= samples),
            min(own for own in self._ends if own >= samples),
        )
        low, high = map(self._traced, ends)
        found = micro_batches_between(low, high, samples)
        if low[0].work.eager.has_kernels_of(high[0].work.eager) or ends in self._compared:
            return found
        if found == self._traced(samples):
            self._compared.add(ends)
            return found
        self._ends.add(samples)
        return None


def _between_events(low: Event, high: Event, position: float) -> Event | None:
    if low == high:
        return low
    if isinstance(low, Free) or isinstance(high, Free):
        return None
    is_same = (low.number, low.formula) == (high.number, high.formula)
    if not is_same or len(low.integers) != len(high.integers):
        return None
    # Rounded, because a size is a whole number of bytes or elements.
    pairs = zip(low.integers, high.integers, strict=True)
    return low._replace(integers=tuple(round(a + (b - a) * position) for a, b in pairs))
