"""Streams put together to training steps and run through the allocator: the peak, and what it consisted of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.prediction.affine_stream import Allocation, Stream
from orchestrator.prediction.allocator import CachingAllocator
from orchestrator.prediction.gpus import Gpu

_STEPS = 3  # optimizer states exist from the second on; the third shows what fragmentation adds
_MICRO_BATCHES = 3  # of an accumulation: the second finds gradients, later ones repeat it


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A trial as streams. Everything that outlives a micro-batch or an update is not freed in its stream."""

    model: Stream
    first: Stream
    """A micro-batch that meets no gradients."""
    later: Stream | None
    """A micro-batch that meets the gradients of the one before; None without accumulation."""
    accumulation: int
    first_update: Stream
    """Clipping and the optimizer's step that creates its states."""
    update: Stream
    reserved_elsewhere: int = 0
    """Bytes cached for another CUDA stream, which are not given to this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a replay saw. Bytes."""

    peak_allocated: int
    peak_reserved: int
    reserved_otherwise: int
    """The same with segments in the other order: where that makes a difference, little would."""
    at_peak: Mapping[str, int]
    """Kind -> bytes at the moment of the peak; they add up to ``peak_allocated``."""


@dataclass(slots=True)
class _Replay:
    gpu: Gpu
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    blocks: dict[tuple[int, int], tuple[Any, str]] = field(default_factory=dict)
    once: set[str] = field(default_factory=set)
    held: Counter[str] = field(default_factory=Counter)
    at_peak: Counter[str] = field(default_factory=Counter)
    runs: int = 0

    def run(self, stream: Stream) -> list[tuple[int, int]]:
        """Play a stream; returns what it leaves allocated, except what is kept for good."""
        self.runs += 1
        left: dict[tuple[int, int], None] = {}
        for event in stream.events:
            key = (self.runs, event.number)
            if not isinstance(event, Allocation):
                self.free(key)
                left.pop(key, None)
            elif not event.once:
                self._allocate(key, event)
                left[key] = None
            elif event.once not in self.once:
                self.once.add(event.once)
                self._allocate(key, event)
        return list(left)

    def batch(self, stream: Stream) -> list[tuple[int, int]]:
        """The inputs alone: all micro-batches of an accumulation are fetched before the first is run."""
        inputs = [
            event
            for event in stream.events
            if isinstance(event, Allocation) and event.kind == "inputs"
        ]
        return self.run(Stream(events=tuple(inputs)))

    def _allocate(self, key: tuple[int, int], event: Allocation) -> None:
        allocator = self.allocator
        before = allocator.peak_allocated
        block = allocator.allocate(event.nbytes(self.gpu))
        self.blocks[key] = (block, event.kind)
        if block is not None:
            self.held[event.kind] += block.size
        if allocator.peak_allocated > before:
            self.at_peak = self.held.copy()

    def free(self, key: tuple[int, int]) -> None:
        if key not in self.blocks:
            return
        block, kind = self.blocks.pop(key)
        if block is not None:
            self.held[kind] -= block.size
        self.allocator.free(block)


def replay(trial: Trial, gpu: Gpu) -> Outcome:
    """Build the model and train a few steps; the peaks are those of the training, as the tracker resets them."""
    state = _trained(trial, _Replay(gpu=gpu))
    otherwise = _trained(trial, _Replay(gpu=gpu, allocator=CachingAllocator(upwards=True)))
    return Outcome(
        peak_allocated=state.allocator.peak_allocated,
        peak_reserved=state.allocator.peak_reserved + trial.reserved_elsewhere,
        reserved_otherwise=otherwise.allocator.peak_reserved + trial.reserved_elsewhere,
        at_peak={kind: nbytes for kind, nbytes in state.at_peak.items() if nbytes},
    )


def _trained(trial: Trial, state: _Replay) -> _Replay:
    state.run(trial.model)
    state.allocator.peak_allocated = state.allocator.allocated
    state.at_peak = state.held.copy()
    for step in range(_STEPS):
        passing = state.run(trial.first)
        for _ in range(trial.accumulation - _MICRO_BATCHES):
            passing += state.batch(trial.first)
        for _ in range(min(trial.accumulation, _MICRO_BATCHES) - 1):
            if trial.later is not None:
                passing += state.run(trial.later)
        state.run(trial.update if step else trial.first_update)
        _drop(state, passing)
    return state


def _drop(state: _Replay, keys: Iterable[tuple[int, int]]) -> None:
    """``zero_grad``, and the step's batches going out of scope."""
    for key in keys:
        state.free(key)
