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
    buckets: int = 1
    partition_bytes: int
    """Gradients of what this rank updates; 0: they are on the host."""
    is_alone: bool = False
    """Whether there is one rank, so that a full bucket is one slice, which is reduced in place."""
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
        return _joined(self.of(first), without_gradients(self.of(first)))

    def of(self, stream: Stream) -> Stream:
        """The events of a micro-batch with those of the reduction."""
        # Numbers that no event of the stream has.
        self._number = max(event.number for event in stream.events)
        # Stage 3 has it among what is resident.
        self._has_partition = self.stage == 3 or not self.partition_bytes
        return replace(stream, events=tuple(self._events(stream.events)))

    def _events(self, events: Sequence[Event]) -> Iterator[Event]:
        buckets = 1 if self.stage == 3 else self.buckets
        bucket = self._taken(buckets * self.bucket_bytes, "ZeRO buffers")
        position = 0 if self.stage == 3 else first_allocation_after_a_gradient(events)
        ready: list[Allocation] = []
        """Gradients that are not in the bucket."""
        for index, event in enumerate(events):
            if index == position:
                yield bucket
            # A gradient is copied when the inputs of its operator are free.
            if isinstance(event, Allocation) and index >= position and self.stage > 1:
                yield from self._bucketed(ready)
            yield event
            if isinstance(event, Allocation) and event.kind == "gradients":
                ready.append(event)
        yield from self._bucketed(ready)
        yield from self._reduced()
        yield Free(number=bucket.number)

    def _bucketed(self, gradients: list[Allocation]) -> Iterator[Event]:
        for gradient in gradients:
            nbytes = gradient.integers[0]
            if self._filled and self._filled + nbytes > self.bucket_bytes:
                yield from self._reduced()
            self._filled += nbytes
            yield Free(number=gradient.number)
        gradients.clear()

    def _reduced(self) -> Iterator[Event]:
        if not self.is_alone:
            copy = self._taken(self._filled, "ZeRO buffers")
            yield from (copy, Free(number=copy.number))
        self._filled = 0
        if not self._has_partition:
            yield self._taken(self.partition_bytes, "gradients")
        self._has_partition = True

    def _taken(self, nbytes: int, kind: str) -> Allocation:
        self._number += 1
        return Allocation(number=self._number, formula="tensor", integers=(nbytes,), kind=kind)


def without_gradients(stream: Stream) -> Stream:
    """The stream, which at its end frees the gradients that it leaves."""
    freed = {own.number for own in stream.events if isinstance(own, Free)}
    left = (own.number for own in stream.events if getattr(own, "kind", "") == "gradients")
    frees = [Free(number=number) for number in left if number not in freed]
    return replace(stream, events=(*stream.events, *frees))


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
