"""What DeepSpeed's engine allocates to average the gradients of several ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.prediction.streams.affine_stream import Allocation, Event, Free, Stream


@dataclass(kw_only=True, slots=True)
class Reduction:
    """Gradients are averaged a bucket at a time.

    Of a full bucket a copy is reduced (``allreduce_bucket`` of stage_1_and_2.py,
    ``reduce_scatter_coalesced`` of deepspeed/runtime/comm/coalesced_collectives.py). What this rank
    updates then lies in a partition, which stages 1 and 2 allocate with the first reduction
    (``copy_grads_in_partition``). Stage 1 reduces only after the backward pass.
    """

    stage: int
    bucket_bytes: int
    partition_bytes: int
    """Gradients of what this rank updates."""
    _number: int = field(default=0, init=False)
    _filled: int = field(default=0, init=False)
    """Bytes in the bucket."""
    _has_partition: bool = field(default=False, init=False)

    def of_step(self, first: Stream, later: Stream | None) -> Stream:
        """The events of a step of one micro-batch, or of two: ``later`` is the second one, which
        adds to the gradients of the first.

        From stage 2 on, every micro-batch is reduced and finds no gradients. Stage 2 adds what it
        got to the partition, and drops it.
        """
        if later is None:
            return self.of(first)
        if self.stage == 1:
            return self.of(_joined(first, later))
        again = self.of(first)
        if self.stage == 2:
            (partition,) = (own for own in again.events if _is_left(own, again, "gradients"))
            again = replace(again, events=(*again.events, Free(number=partition.number)))
        return _joined(self.of(first), again)

    def of(self, stream: Stream) -> Stream:
        """The events of a micro-batch with those of the reduction."""
        # Numbers that no event of the stream has.
        self._number = max(event.number for event in stream.events)
        self._has_partition = self.stage == 3  # among what is resident
        return replace(stream, events=tuple(self._events(stream.events)))

    def _events(self, events: Sequence[Event]) -> Iterator[Event]:
        bucket = self._taken(self.bucket_bytes, "ZeRO buffers")
        position = 0 if self.stage == 3 else first_allocation_after_a_gradient(events)
        kept = []
        for index, event in enumerate(events):
            if index == position:
                yield bucket
            yield event
            if not isinstance(event, Allocation) or event.kind != "gradients":
                continue
            if self.stage == 1:
                kept.append(event)
            else:
                yield from self._bucketed(event)
        for gradient in kept:
            yield from self._bucketed(gradient)
        yield from self._reduced()
        yield Free(number=bucket.number)

    def _bucketed(self, gradient: Allocation) -> Iterator[Event]:
        nbytes = gradient.integers[0]
        if self._filled and self._filled + nbytes > self.bucket_bytes:
            yield from self._reduced()
        self._filled += nbytes
        yield Free(number=gradient.number)

    def _reduced(self) -> Iterator[Event]:
        copy = self._taken(self._filled, "ZeRO buffers")
        yield from (copy, Free(number=copy.number))
        self._filled = 0
        if not self._has_partition:
            yield self._taken(self.partition_bytes, "gradients")
        self._has_partition = True

    def _taken(self, nbytes: int, kind: str) -> Allocation:
        self._number += 1
        return Allocation(number=self._number, formula="tensor", integers=(nbytes,), kind=kind)


def _is_left(event: Event, stream: Stream, kind: str) -> bool:
    """Whether it is an allocation of this kind that the stream does not free."""
    freed = (own.number for own in stream.events if isinstance(own, Free))
    return isinstance(event, Allocation) and event.kind == kind and event.number not in freed


def _joined(one: Stream, other: Stream) -> Stream:
    """Both in a row."""
    beyond = 1 + max(event.number for event in one.events)
    renumbered = (event._replace(number=event.number + beyond) for event in other.events)
    return replace(one, events=(*one.events, *renumbered))


def first_allocation_after_a_gradient(events: Sequence[Event]) -> int:
    """The position of the first allocation after a gradient and then a free; -1 if none is."""
    has_gradient = False
    has_freed_inputs = False
    for index, event in enumerate(events):
        if isinstance(event, Free):
            has_freed_inputs = has_gradient
        elif has_freed_inputs:
            return index
        elif event.kind == "gradients":
            has_gradient = True
    return -1
