"""Streams on a GPU: the bytes that each of their allocations asks for there."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.streams.affine_stream import Allocation, Event, Stream

Step = tuple[int, str, str, int]
"""Of an allocation its number, kind, name if it is taken once, and CUDA stream. Without a kind, the
allocation of this number is freed."""


@dataclass(frozen=True)
class SizedStream:
    """What happens in order, and the bytes that are asked for: 0 for a free."""

    steps: Sequence[Step]
    sizes: Sequence[int]

    @classmethod
    def of(cls, stream: Stream, gpu: Gpu) -> "SizedStream":
        """A stream whose sizes are those of its trace."""
        events = stream.events
        sizes = [event.nbytes(gpu) if isinstance(event, Allocation) else 0 for event in events]
        return cls(steps_of(events), sizes)

    @functools.cached_property
    def digest(self) -> tuple[int, int]:
        """Equal for equal streams."""
        return hash(tuple(self.steps)), hash(tuple(self.sizes))

    @property
    def inputs(self) -> "SizedStream":
        """Its inputs alone."""
        pairs = zip(self.steps, self.sizes, strict=True)
        found = [(step, nbytes) for step, nbytes in pairs if step[1] == "inputs"]
        return SizedStream([step for step, _ in found], [nbytes for _, nbytes in found])


def steps_of(events: Sequence[Event]) -> list[Step]:
    return [
        (event.number, event.kind, event.once, event.cuda_stream)
        if isinstance(event, Allocation)
        else (event.number, "", "", 0)
        for event in events
    ]


class SizedStreams:
    """The sizes of streams on a GPU, computed once for each stream."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._known: dict[int, tuple[Stream, SizedStream]] = {}

    def __call__(self, stream: Stream) -> SizedStream:
        # The stream is kept, so that no other one gets its id.
        if id(stream) not in self._known:
            self._known[id(stream)] = (stream, SizedStream.of(stream, self._gpu))
        return self._known[id(stream)][1]
