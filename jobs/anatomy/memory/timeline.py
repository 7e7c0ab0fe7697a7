"""Names every byte of a step's allocations, at the peak and over time."""

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jobs.anatomy.trace import MemoryEvent, PhaseSpan, Trace, phase_at
from jobs.anatomy_record import OTHER, Timeline

Sizes = NDArray[np.int64]
SAMPLES = 150  # samples of a timeline, at most
SAVED = "saved activations"


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownBlocks:
    """What the observer knows about addresses, beyond the trace. Sizes are bytes."""

    before: Mapping[int, int] = field(default_factory=dict)  # address -> size at its beginning
    names: Mapping[int, str] = field(default_factory=dict)  # address -> name between steps
    gradients: Collection[int] = frozenset()
    inputs: Collection[int] = frozenset()
    parameters: Collection[int] = frozenset()
    bucket_sizes: Collection[int] = frozenset()  # sizes that only DeepSpeed's gradient buckets have


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMemory:
    """Bytes that tensors held over a step, by name."""

    at_peak: Mapping[str, int]
    saved_by_operator: Mapping[str, int]  # bytes that were saved at the peak, largest first
    peak_bytes: int
    reserved_at_peak: int  # bytes that the caching allocator held from the device at the peak
    timeline: Timeline


@dataclass(slots=True)
class _Block:
    """A piece of memory from its allocation to its release."""

    address: int
    nbytes: int
    allocation: MemoryEvent | None  # None: allocated before the step
    freed_at: float = math.inf
    name: str = ""


def step_memory(trace: Trace, known: KnownBlocks) -> StepMemory:
    """Follow the step's allocations, from the blocks that existed before it."""
    blocks, changes = _blocks(trace, known)
    # The purpose of a block depends on when it is released, so blocks are named in a second pass.
    for block in blocks:
        block.name = _name(block, known, trace.phases)
    names = list(dict.fromkeys(block.name for block in blocks))
    held = _held(names, blocks, changes)
    total = held.sum(axis=0)
    peak = int(total.argmax())  # of equal peaks the first
    saved: Counter[str] = Counter()
    for event, block in changes[:peak]:
        if block.name == SAVED and block.allocation is not None:
            saved[block.allocation.operator] += event.nbytes
    return StepMemory(
        at_peak=_without_zeros(dict(zip(names, held[:, peak].tolist(), strict=True))),
        saved_by_operator=_without_zeros(dict(saved.most_common())),
        peak_bytes=int(total[peak]),
        reserved_at_peak=changes[peak - 1][0].reserved if peak else 0,
        timeline=_timeline(trace.phases, [event.time for event, _ in changes], names, held),
    )


def _blocks(
    trace: Trace, known: KnownBlocks
) -> tuple[list[_Block], list[tuple[MemoryEvent, _Block]]]:
    before = known.before.items()
    allocated = {address: _Block(address, nbytes, allocation=None) for address, nbytes in before}
    blocks = list(allocated.values())
    changes = []
    for event in trace.memory_events:
        if event.nbytes > 0:
            block = _Block(event.address, event.nbytes, allocation=event)
            allocated[event.address] = block
            blocks.append(block)
        elif event.address in allocated:
            block = allocated.pop(event.address)
            block.freed_at = event.time
        else:
            # Of a block that it did not see allocated, PyTorch's profiler for CPUs reports the size
            # that an earlier profile saw at this address.
            continue
        changes.append((event, block))
    return blocks, changes


def _name(block: _Block, known: KnownBlocks, phases: Sequence[PhaseSpan]) -> str:
    """What a block is for. Addresses are reused, so an address alone proves little."""
    address = block.address
    allocation = block.allocation
    if allocation is None:
        if address in known.inputs:
            return "inputs"
        return known.names.get(address, "gradients" if address in known.gradients else OTHER)
    phase = phase_at(phases, allocation.time)
    if address in known.inputs and phase.name == "data":
        return "inputs"
    if allocation.copy_of in known.parameters:
        return "autocast copies of weights"
    outlives_step = block.freed_at == math.inf
    if outlives_step and address in known.names:
        return known.names[address]
    return _name_by_lifetime(block, allocation, phase, known)


def _name_by_lifetime(
    block: _Block, allocation: MemoryEvent, phase: PhaseSpan, known: KnownBlocks
) -> str:
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
    return "temporary buffers"


def _held(
    names: Sequence[str], blocks: Sequence[_Block], changes: Sequence[tuple[MemoryEvent, _Block]]
) -> Sizes:
    """Bytes of each name (rows) before the step and after each event (columns)."""
    row = {name: index for index, name in enumerate(names)}
    deltas = np.zeros((len(names), len(changes) + 1), dtype=np.int64)
    for block in blocks:
        if block.allocation is None:
            deltas[row[block.name], 0] += block.nbytes
    for column, (event, block) in enumerate(changes, start=1):
        deltas[row[block.name], column] = event.nbytes
    return deltas.cumsum(axis=1)


def _without_zeros(nbytes_by_name: Mapping[str, int]) -> dict[str, int]:
    return {name: nbytes for name, nbytes in nbytes_by_name.items() if nbytes}


def _timeline(
    phases: Sequence[PhaseSpan], times: Sequence[float], names: Sequence[str], held: Sizes
) -> Timeline:
    """The step in ``SAMPLES`` equal stretches: the bytes at the highest moment of each, of those
    after each of ``times``."""
    marks = [*times, *(time for phase in phases for time in (phase.begin, phase.end))]
    begin = min(marks, default=0)
    edges = np.linspace(begin, max(marks, default=0), SAMPLES + 1 if marks else 2)
    highest = _highest(held.sum(axis=0), np.searchsorted(times, edges[:-1]))
    series = {name: held[row, highest].tolist() for row, name in enumerate(names)}
    runs = itertools.groupby(phases, key=lambda phase: phase.name)
    return Timeline(
        seconds=[_seconds(edge - begin) for edge in edges[:-1]],
        held={name: sizes for name, sizes in series.items() if any(sizes)},
        phases=[(name, _seconds(next(spans).begin - begin)) for name, spans in runs],
    )


def _highest(total: Sizes, first: Sizes) -> list[int]:
    """Where the bytes are highest, after each of the first events of a stretch."""
    # What is held after the last event before a stretch is held at its beginning, too.
    stretches = itertools.pairwise([*first.tolist(), len(total) - 1])
    return [begin + int(total[begin : end + 1].argmax()) for begin, end in stretches]


def _seconds(nanoseconds: float) -> float:
    """Rounded to microseconds: a chart shows no more."""
    return round(float(nanoseconds) / 1e9, 6)
