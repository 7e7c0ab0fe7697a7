"""What every byte was for, at the peak of a step and over it: the step's allocations, named."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from jobs.anatomy.memory.kinds import OTHER
from jobs.anatomy.trace import Change, Trace
from jobs.anatomy_record import Timeline

SAMPLES = 150
"""Of the timeline."""
TEMPORARY = "temporary buffers"
SAVED = "saved activations"


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What is known of addresses from outside the trace. Sizes in bytes."""

    before: Mapping[int, int] = field(default_factory=dict)
    """Address -> size of every block alive as the step began."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Address -> name of what lives from step to step."""
    gradients: Collection[int] = frozenset()
    inputs: Collection[int] = frozenset()
    parameters: Collection[int] = frozenset()
    buckets: Collection[int] = frozenset()
    """Sizes that only DeepSpeed's buckets have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes held by tensors over a step."""

    at_peak: Mapping[str, int]
    most: Mapping[str, int]
    """The most that each name held at any moment."""
    saved: Mapping[str, int]
    """Operator -> activations it had saved at the peak."""
    peak: int
    reserved_at_peak: int
    timeline: Timeline


@dataclass(slots=True)
class _Block:
    nbytes: int
    taken: Change | None
    freed: float = math.inf
    name: str = ""


def account(trace: Trace, known: Known) -> Memory:
    """Follow the step's allocations from what was there before it."""
    blocks, events = _blocks(trace, known)
    phases = _Phases(trace)
    for address, block in blocks:
        block.name = _name(block, address, known, phases)
    held: Counter[str] = Counter()
    for _, block in blocks:
        if block.taken is None:
            held[block.name] += block.nbytes
    return _follow(events, held, trace)


def _blocks(
    trace: Trace, known: Known
) -> tuple[list[tuple[int, _Block]], list[tuple[Change, _Block]]]:
    """All blocks with their addresses, and the changes with theirs. What is freed unknown was there before."""
    alive = {address: _Block(nbytes=nbytes, taken=None) for address, nbytes in known.before.items()}
    blocks = list(alive.items())
    events = []
    for change in trace.changes:
        if change.nbytes > 0:
            block = alive[change.address] = _Block(nbytes=change.nbytes, taken=change)
            blocks.append((change.address, block))
        else:
            gone = alive.pop(change.address, None)
            if gone is None:
                gone = _Block(nbytes=-change.nbytes, taken=None)
                blocks.append((change.address, gone))
            block = gone
            block.freed = change.at
        events.append((change, block))
    return blocks, events


class _Phases:
    def __init__(self, trace: Trace) -> None:
        self._spans = trace.phases
        self._begins = [begin for _, begin, _ in trace.phases]

    def at(self, time: int) -> tuple[str, int]:
        """What the loop was doing, and until when."""
        place = bisect.bisect_right(self._begins, time) - 1
        if place < 0:
            return "upkeep", 0
        name, _, end = self._spans[place]
        return name, end


def _name(block: _Block, address: int, known: Known, phases: _Phases) -> str:
    change = block.taken
    if address in known.inputs and (change is None or phases.at(change.at)[0] == "data"):
        return "inputs"
    if change is None:
        return known.names.get(address, "gradients" if address in known.gradients else OTHER)
    if change.copies in known.parameters:
        return "autocast copies of weights"
    if block.freed == math.inf and address in known.names:
        return known.names[address]
    return _passing(block, change, address, known, *phases.at(change.at))


def _passing(
    block: _Block, change: Change, address: int, known: Known, phase: str, until: int
) -> str:
    """The name of what a step brings and takes away."""
    if change.nbytes in known.buckets:
        return "ZeRO buffers"
    if phase == "data":
        return "inputs"
    if change.recomputed:
        return "recomputed activations"
    outlives = block.freed > until
    if phase == "forward" and outlives:
        return SAVED
    if phase == "backward" and outlives and address in known.gradients:
        return "gradients"
    return TEMPORARY


def _follow(events: list[tuple[Change, _Block]], held: Counter[str], trace: Trace) -> Memory:
    saved: Counter[str] = Counter()
    total = peak = sum(held.values())
    reserved = 0
    at_peak, saved_at_peak, most = held.copy(), saved.copy(), held.copy()
    samples = _Samples(trace, held)
    for change, block in events:
        held[block.name] += change.nbytes
        total += change.nbytes
        if block.name == SAVED and block.taken is not None:
            saved[block.taken.operator] += change.nbytes
        most[block.name] = max(most[block.name], held[block.name])
        samples.take(change.at, total, held)
        if total > peak:
            peak, at_peak, saved_at_peak, reserved = (
                total,
                held.copy(),
                saved.copy(),
                change.reserved,
            )
    return Memory(
        at_peak={name: nbytes for name, nbytes in at_peak.items() if nbytes},
        most={name: nbytes for name, nbytes in most.items() if nbytes},
        saved={name: nbytes for name, nbytes in saved_at_peak.most_common() if nbytes},
        peak=peak,
        reserved_at_peak=reserved,
        timeline=samples.timeline(list(most)),
    )


class _Samples:
    """Of each stretch of time the highest moment."""

    def __init__(self, trace: Trace, held: Counter[str]) -> None:
        times = [change.at for change in trace.changes] + [
            t for _, begin, end in trace.phases for t in (begin, end)
        ]
        self._begin, self._end = (min(times), max(times)) if times else (0, 1)
        self._phases = trace.phases
        self._length = max(1, self._end - self._begin) / SAMPLES
        self._highest: list[tuple[int, Mapping[str, int]]] = [(sum(held.values()), dict(held))]

    def take(self, at: int, total: int, held: Counter[str]) -> None:
        place = min(int((at - self._begin) / self._length), SAMPLES - 1)
        while len(self._highest) <= place:
            self._highest.append((total, dict(held)))
        if total > self._highest[-1][0]:
            self._highest[-1] = (total, dict(held))

    def timeline(self, names: list[str]) -> Timeline:
        moments = [held for _, held in self._highest]
        series = {name: [held.get(name, 0) for held in moments] for name in names}
        return Timeline(
            seconds=[round(place * self._length / 1e9, 6) for place in range(len(moments))],
            held={name: values for name, values in series.items() if any(values)},
            phases=list(self._merged()),
        )

    def _merged(self) -> Iterator[tuple[str, float]]:
        last = ""
        for name, begin, _ in self._phases:
            if name != last:
                yield name, round((begin - self._begin) / 1e9, 6)
            last = name
