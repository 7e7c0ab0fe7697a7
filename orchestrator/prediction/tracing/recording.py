"""What was allocated and freed since the last stream, and the kinds that become known later."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from orchestrator.prediction.streams.affine_stream import Allocation, Event, Free, Stream
from orchestrator.prediction.time.operations import Operation
from orchestrator.prediction.time.step_work import PartWork

_KIND_LEFT_BY = {
    "build": "weights",
    "inputs": "inputs",
    "forward": "saved activations",
    "backward": "gradients",
    "update": "optimizer states",
    "share": "communication buffers",
}
"""Phase -> the kind of its allocations that are still in memory when the phase ends."""


@dataclass(slots=True)
class Recording:
    """The events that were recorded since the last stream."""

    events: list[Event] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)
    """Number of an allocation -> its kind, once that is known."""
    alive: dict[int, str] = field(default_factory=dict)
    """Number of a living allocation -> the phase that made it."""
    left_out: set[int] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    last_number: int = 0
    operations: list[Operation] = field(default_factory=list)
    streams: list[Any] = field(default_factory=lambda: [torch.cpu.current_stream()])
    """What stands for CUDA streams on a CPU, the one that computes first."""

    def take(self, formula: str, integers: tuple[int, ...], kind: str, *, once: str = "") -> int:
        """Record an allocation. Returns its number."""
        self.last_number += 1
        number = self.last_number
        if kind:
            self.kinds[number] = kind
        stream = torch.cpu.current_stream()
        if stream not in self.streams:
            self.streams.append(stream)
        self.events.append(
            Allocation(
                number=number,
                formula=formula,
                integers=integers,
                kind=kind,
                once=once,
                cuda_stream=self.streams.index(stream),
            )
        )
        return number

    def leave(self, phase: str) -> None:
        """Give the allocations of a phase their kinds that still live at its end."""
        for number, own in self.alive.items():
            if own == phase:
                self.kinds.setdefault(number, _KIND_LEFT_BY[phase])

    def take_once(self, name: str, library: str) -> None:
        """Record the workspace of a library, unless that was recorded by this name."""
        if name not in self.kernels:
            self.kernels.add(name)
            self.take(library, (), "library workspaces", once=name)

    def take_for_a_kernel(self, workspaces: Iterable[tuple[str, tuple[int, ...]]]) -> None:
        """Record what is taken and freed again while a kernel runs."""
        taken = [self.take(*own, "kernel workspaces") for own in workspaces]
        self.events += [Free(number=number) for number in taken]

    def to_stream(self, samples: int) -> Stream:
        """The recorded events in order. Frees between two allocations are sorted by number: a whole
        set that is freed, such as autocast's cache, has no order."""
        # Collect frees until the next allocation, then add them in the order of their numbers.
        events: list[Event] = []
        frees: list[Free] = []
        for event in self.events:
            if event.number in self.left_out:
                continue
            if isinstance(event, Free):
                frees.append(event)
                continue
            # An allocation that outlives its phase gets its kind when the phase has ended.
            kind = self.kinds.get(event.number, "temporary buffers")
            events += [*sorted(frees, key=attrgetter("number")), event._replace(kind=kind)]
            frees = []
        events += sorted(frees, key=attrgetter("number"))
        return Stream(
            events=tuple(events),
            samples=samples,
            kernels=frozenset(self.kernels),
            work=PartWork.of(self.operations, kept=self.alive),
        )
