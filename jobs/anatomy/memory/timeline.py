"""Names every byte of a step's allocations, at the peak and over time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jobs.anatomy.memory.kinds import OTHER
from jobs.anatomy.trace import MemoryEvent, PhaseIndex, PhaseSpan, Trace
from jobs.anatomy_record import Timeline

SAMPLES = 150
"""Samples of a timeline, at most."""
TEMPORARY = "temporary buffers"
SAVED = "saved activations"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownBlocks:
    """What the observer knows about addresses, beyond the trace. Sizes are bytes."""

    before: Mapping[int, int] = field(default_factory=dict)
    """Address -> size of every block that was allocated when the step began."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Address -> name of the tensor there that exists between steps."""
    gradients: Collection[int] = frozenset()
    inputs: Collection[int] = frozenset()
    parameters: Collection[int] = frozenset()
    bucket_sizes: Collection[int] = frozenset()
    """Sizes that only DeepSpeed's gradient buckets have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMemory:
    """Bytes that tensors held over a step, by name."""

    at_peak: Mapping[str, int]
    peak_by_name: Mapping[str, int]
    """The most that each name held at any moment."""
    saved_by_operator: Mapping[str, int]
    """Operator -> bytes of activations that it had saved at the peak, largest first."""
    peak_bytes: int
    reserved_at_peak: int
    """Bytes that the caching allocator held from the device at the peak."""
    timeline: Timeline


@dataclass(slots=True)
class _Block:
    """A piece of memory from its allocation to its release. Times are the trace's nanoseconds."""

    address: int
    nbytes: int
    allocation: MemoryEvent | None
    """None: allocated before the step."""
    freed_at: float = math.inf
    name: str = ""


def step_memory(trace: Trace, known: KnownBlocks) -> StepMemory:
    """Follow the step's allocations, from the blocks that existed before it."""
    # Which block does each event allocate or release?
    blocks, changes = _blocks(trace, known)
    # The purpose of a block depends on when it is released, so blocks are named in a second pass.
    phases = PhaseIndex(trace.phases)
    for block in blocks:
        block.name = _name(block, known, phases)
    held: Counter[str] = Counter()
    for block in blocks:
        if block.allocation is None:
            held[block.name] += block.nbytes
    return _follow(changes, held, trace)


def _blocks(
    trace: Trace, known: KnownBlocks
) -> tuple[list[_Block], list[tuple[MemoryEvent, _Block]]]:
    """All blocks, and each memory event with its block."""
    # What is allocated at each moment, while the events are read in order.
    allocated = {
        address: _Block(address=address, nbytes=nbytes, allocation=None)
        for address, nbytes in known.before.items()
    }
    blocks = list(allocated.values())
    changes = []
    for event in trace.memory_events:
        if event.nbytes > 0:
            # A new block at an old address is another block.
            block = _Block(address=event.address, nbytes=event.nbytes, allocation=event)
            allocated[event.address] = block
            blocks.append(block)
        else:
            block = _released_block(event, allocated, blocks)
        changes.append((event, block))
    return blocks, changes


def _released_block(
    event: MemoryEvent, allocated: dict[int, _Block], blocks: list[_Block]
) -> _Block:
    """The block that an event releases, which is removed from ``allocated``.

    A block that is in neither collection is new there, and is added to ``blocks``.
    """
    if event.address in allocated:
        block = allocated.pop(event.address)
    else:  # its allocation was not seen, so it existed before the step
        block = _Block(address=event.address, nbytes=-event.nbytes, allocation=None)
        blocks.append(block)
    block.freed_at = event.time
    return block


def _name(block: _Block, known: KnownBlocks, phases: PhaseIndex) -> str:
    """What a block is for. Addresses are reused, so an address alone proves little."""
    address = block.address
    allocation = block.allocation
    if allocation is None:
        return _name_from_before(address, known)
    # Known purposes first, then guesses by how long the block lives.
    phase = phases.at(allocation.time)
    if address in known.inputs and phase.name == "data":
        return "inputs"
    if allocation.copy_of in known.parameters:
        return "autocast copies of weights"
    outlives_step = block.freed_at == math.inf
    if outlives_step and address in known.names:
        return known.names[address]
    return _name_by_lifetime(block, allocation, phase, known)


def _name_from_before(address: int, known: KnownBlocks) -> str:
    """The purpose of a block that was allocated before the step."""
    if address in known.inputs:
        return "inputs"
    if address in known.names:
        return known.names[address]
    if address in known.gradients:
        return "gradients"
    return OTHER


def _name_by_lifetime(
    block: _Block, allocation: MemoryEvent, phase: PhaseSpan, known: KnownBlocks
) -> str:
    """The purpose of a block that the step allocated, judged by when it is released."""
    if allocation.nbytes in known.bucket_sizes:
        return "ZeRO buffers"
    if phase.name == "data":
        return "inputs"
    if allocation.recomputed:
        return "recomputed activations"
    # The backward pass releases what the forward pass saved for it: that outlives its phase.
    outlives_phase = block.freed_at > phase.end
    if phase.name == "forward" and outlives_phase:
        return SAVED
    if phase.name == "backward" and outlives_phase and block.address in known.gradients:
        return "gradients"
    return TEMPORARY


def _follow(
    changes: Sequence[tuple[MemoryEvent, _Block]], held: Counter[str], trace: Trace
) -> StepMemory:
    """Add up the changes; ``held`` is name -> bytes at the beginning of the step."""
    # One pass over the events feeds both the totals and the chart.
    memory = _RunningTotals(held)
    samples = _Samples(trace, held)
    for event, block in changes:
        memory.apply(event, block)
        samples.add(event.time, memory.total, memory.held)
    return StepMemory(
        at_peak=_without_zeros(memory.at_peak),
        peak_by_name=_without_zeros(memory.peak_by_name),
        saved_by_operator=_without_zeros(dict(memory.saved_at_peak.most_common())),
        peak_bytes=memory.peak_bytes,
        reserved_at_peak=memory.reserved_at_peak,
        timeline=samples.timeline(list(memory.peak_by_name)),
    )


class _RunningTotals:
    """Bytes that are held as the step goes on, and those that were held at its peak."""

    def __init__(self, held: Counter[str]) -> None:
        self.held = held.copy()
        """Name -> bytes."""
        self.total = sum(held.values())
        self.saved: Counter[str] = Counter()
        """Operator -> bytes of saved activations."""
        self.peak_by_name = held.copy()
        self.peak_bytes = self.total
        self.at_peak = held.copy()
        self.saved_at_peak = self.saved.copy()
        self.reserved_at_peak = 0

    def apply(self, event: MemoryEvent, block: _Block) -> None:
        """An allocation or a release of a block."""
        name = block.name
        self.held[name] += event.nbytes
        self.total += event.nbytes
        # Every name has a peak of its own, at another time than the step's.
        self.peak_by_name[name] = max(self.peak_by_name[name], self.held[name])
        # Which operator saved it: the table of activations is by operator.
        if name == SAVED and block.allocation is not None:
            self.saved[block.allocation.operator] += event.nbytes
        # Strictly above: of equal peaks the first is kept.
        if self.total > self.peak_bytes:
            self.peak_bytes = self.total
            self.at_peak = self.held.copy()
            self.saved_at_peak = self.saved.copy()
            self.reserved_at_peak = event.reserved


def _without_zeros(nbytes_by_name: Mapping[str, int]) -> dict[str, int]:
    return {name: nbytes for name, nbytes in nbytes_by_name.items() if nbytes}


class _Samples:
    """Cuts the step into ``SAMPLES`` equal stretches and keeps the highest moment of each."""

    def __init__(self, trace: Trace, held: Counter[str]) -> None:
        times = [event.time for event in trace.memory_events]
        for phase in trace.phases:
            times += [phase.begin, phase.end]
        self._begin = min(times, default=0)
        self._phases = trace.phases
        # Nanoseconds; at least one, so that an empty trace causes no division by zero.
        self._stretch = max(1, max(times, default=1) - self._begin) / SAMPLES
        self._highest: list[tuple[int, Mapping[str, int]]] = [(sum(held.values()), dict(held))]
        """Total bytes and bytes by name at the highest moment of each stretch so far."""

    def add(self, time: int, total: int, held: Counter[str]) -> None:
        """The memory after an event."""
        # The last event lies at the very end, which belongs to the last stretch.
        index = min(int((time - self._begin) / self._stretch), SAMPLES - 1)
        # A stretch without events holds what the event before it left.
        while len(self._highest) <= index:
            self._highest.append((total, dict(held)))
        if total > self._highest[-1][0]:
            self._highest[-1] = (total, dict(held))

    def timeline(self, names: Sequence[str]) -> Timeline:
        """The samples as a series of bytes for each name that ever held any."""
        held: dict[str, list[int]] = {}
        for name in names:
            series = [nbytes_by_name.get(name, 0) for _, nbytes_by_name in self._highest]
            if any(series):
                held[name] = series
        # Nanoseconds to seconds, rounded to microseconds: a chart shows no more.
        seconds = [round(index * self._stretch / 1e9, 6) for index in range(len(self._highest))]
        return Timeline(seconds=seconds, held=held, phases=list(self._phase_changes()))

    def _phase_changes(self) -> Iterator[tuple[str, float]]:
        """Each phase that differs from the one before it, and when it began (seconds)."""
        last = ""
        for phase in self._phases:
            if phase.name != last:
                # Nanoseconds to seconds, as in ``seconds``.
                yield phase.name, round((phase.begin - self._begin) / 1e9, 6)
            last = phase.name
