"""Joins streams to training steps and runs them through the allocator: the peak and its parts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.prediction.streams import caching_allocator
from orchestrator.prediction.streams.affine_stream import Stream
from orchestrator.prediction.streams.caching_allocator import Block, CachingAllocator
from orchestrator.prediction.streams.sized_stream import SizedStream, SizedStreams, Step

_REPLAYED_MICRO_BATCHES = 3
"""Micro-batches of an accumulation: the second adds to gradients, later ones repeat it."""
Held = tuple[Block, str]
"""A living allocation and its kind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialStreams:
    """A trial as streams. What outlives a micro-batch or an update is not freed in its stream."""

    model: Stream
    first: Stream
    """A micro-batch that starts without gradients."""
    later: Stream | None
    """A micro-batch that adds to the gradients of the one before; None without accumulation."""
    accumulation: int
    first_update: Stream
    """Clipping, and the optimizer's step that creates its states."""
    update: Stream
    steps: Sequence[Sequence[SizedStream]] = ()
    """The micro-batches of each step, if they differ; empty: ``first`` and ``later`` in all."""
    evaluation: Stream | None = None
    """A batch of an evaluation, which follows the training; None: nothing is evaluated."""
    reserved_elsewhere: int = 0
    """Bytes cached for another CUDA stream, which are not given to this one."""
    empties_cache: bool = False
    """Whether each forward pass begins with an empty cache."""

    def digest(self, sized: SizedStreams) -> tuple[object, ...]:
        """Equal for trials with equal peaks, whose steps are equal."""
        updates = (self.first_update, self.update)
        parts = (self.model, self.first, self.later, *updates, self.evaluation)
        digests = [part and sized(part).digest for part in parts]
        return (*digests, self.accumulation, self.reserved_elsewhere, self.empties_cache)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayedPeaks:
    """The peaks of a replay, in bytes."""

    allocated: int
    reserved: int
    reserved_upwards: int
    """The same with segments at rising addresses: if that differs, the order matters."""
    at_peak: Mapping[str, int]
    """Kind -> bytes at the moment of the allocated peak; they add up to it."""
    is_of_evaluation: bool = False
    """Whether an evaluation allocates more than the training."""
    largest_block: int = 0
    """The segment of a step's largest request: the extra bytes if it cannot reuse a cached one."""
    kernel_workspaces: int = 0
    """Bytes of a step's largest kernel workspace and of all libraries' workspaces."""


def replay(trial: TrialStreams, sized: SizedStreams, *, upwards: bool = True) -> ReplayedPeaks:
    """The peaks of a few steps, or of those given, after the model is built.

    The driver chooses the addresses of segments. With ``upwards`` a second order shows whether they
    matter.
    """
    downwards = _Replay(empties_cache=trial.empties_cache)
    downwards.train(trial, sized)
    other = downwards
    if upwards:
        other = _Replay(CachingAllocator(upwards=True), empties_cache=trial.empties_cache)
        other.train(trial, sized)
    allocations = _step_allocations(trial, sized)
    largest = max((nbytes for _, nbytes in allocations), default=0)
    return ReplayedPeaks(
        allocated=downwards.allocator.peak_allocated,
        reserved=downwards.allocator.peak_reserved + trial.reserved_elsewhere,
        reserved_upwards=other.allocator.peak_reserved + trial.reserved_elsewhere,
        at_peak={kind: nbytes for kind, nbytes in downwards.at_peak.items() if nbytes},
        is_of_evaluation=downwards.is_of_evaluation,
        largest_block=caching_allocator.segment_bytes(caching_allocator.rounded(largest)),
        kernel_workspaces=_kernel_workspaces(allocations),
    )


def _step_allocations(trial: TrialStreams, sized: SizedStreams) -> list[tuple[Step, int]]:
    """The allocations of a step and of an evaluation, without those of the model."""
    streams = (trial.first, trial.later, trial.first_update, trial.update, trial.evaluation)
    allocations: list[tuple[Step, int]] = []
    for own in (sized(stream) for stream in streams if stream is not None):
        pairs = zip(own.steps, own.sizes, strict=True)
        allocations += [pair for pair in pairs if pair[0][1]]
    return allocations


def _kernel_workspaces(allocations: Sequence[tuple[Step, int]]) -> int:
    """What depends on the kernels that a GPU picks: the largest workspace, and the libraries'."""
    kernels = [nbytes for (_, kind, *_), nbytes in allocations if kind == "kernel workspaces"]
    libraries = {once: nbytes for (_, _, once, _), nbytes in allocations if once}
    return max(kernels, default=0) + sum(libraries.values())


@dataclass(slots=True)
class _Replay:
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    taken_once: set[str] = field(default_factory=set)
    by_kind: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes now."""
    at_peak: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes at the peak so far."""
    is_of_evaluation: bool = False
    empties_cache: bool = False

    def train(self, trial: TrialStreams, sized: SizedStreams) -> None:
        self.run(sized(trial.model))
        # Accelerate's ``free_memory``, with which the Trainer begins.
        self.allocator.empty_cache()
        # As the memory tracker does when the model is built.
        self.allocator.peak_allocated = self.allocator.allocated
        self.allocator.peak_reserved = self.allocator.reserved
        self.at_peak = self.by_kind.copy()
        if trial.steps:
            self._steps(trial.steps, sized(trial.first_update), sized(trial.update))
        else:
            self._equal_steps(trial, sized)
        peak_of_training = self.allocator.peak_allocated
        if trial.evaluation is not None:
            # The second batch finds what the allocator kept of the first.
            for _ in range(2):
                self.free(self.run(sized(trial.evaluation)))
        self.is_of_evaluation = self.allocator.peak_allocated > peak_of_training

    def _equal_steps(self, trial: TrialStreams, sized: SizedStreams) -> None:
        """Optimizer states exist from the second step on; a third shows what fragmentation adds, if
        the second left other free blocks than the first."""
        micro_batches = _equal_micro_batches(trial, sized)
        update = sized(trial.update)
        self._steps([micro_batches], sized(trial.first_update), update)
        left = self.allocator.free_blocks
        self._steps([micro_batches], update, update)
        if self.allocator.free_blocks != left:
            self._steps([micro_batches], update, update)

    def _steps(
        self, steps: Sequence[Sequence[SizedStream]], update: SizedStream, later: SizedStream
    ) -> None:
        for micro_batches in steps:
            temporary: list[Held] = []
            for own in micro_batches:
                if self.empties_cache:
                    self.allocator.empty_cache()
                temporary += self.run(own)
            self.run(update)
            # ``zero_grad``, and the step's batches go out of scope.
            self.free(temporary)
            update = later

    def run(self, stream: SizedStream) -> list[Held]:
        """Run a stream; returns what it leaves allocated, except what is kept for good."""
        living: dict[int, Held] = {}
        allocator, by_kind, taken_once = self.allocator, self.by_kind, self.taken_once
        peak, is_at_peak = allocator.peak_allocated, False
        for (number, kind, once, cuda_stream), nbytes in zip(
            stream.steps, stream.sizes, strict=True
        ):
            if nbytes > 0:
                if once in taken_once:
                    continue
                block = allocator.allocate(nbytes, cuda_stream)
                by_kind[kind] += block.size
                if once:
                    taken_once.add(once)
                else:
                    living[number] = (block, kind)
                if allocator.allocated > peak:
                    peak, is_at_peak = allocator.allocated, True
            elif number in living:  # what the trial keeps for good has no number here
                if is_at_peak:
                    self.at_peak, is_at_peak = by_kind.copy(), False
                block, kind = living.pop(number)
                by_kind[kind] -= block.size
                allocator.free(block)
        if is_at_peak:
            self.at_peak = by_kind.copy()
        return list(living.values())

    def free(self, held: Iterable[Held]) -> None:
        """Give allocations back."""
        for block, kind in held:
            self.by_kind[kind] -= block.size
            self.allocator.free(block)


def _equal_micro_batches(trial: TrialStreams, sized: SizedStreams) -> list[SizedStream]:
    """Those of a step, of which many are replaced by their inputs alone: an accumulation fetches
    all its micro-batches before the first runs."""
    first = sized(trial.first)
    micro_batches = [first]
    micro_batches += [first.inputs] * (trial.accumulation - _REPLAYED_MICRO_BATCHES)
    if trial.later is not None:
        repeated = min(trial.accumulation, _REPLAYED_MICRO_BATCHES) - 1
        micro_batches += [sized(trial.later)] * repeated
    return micro_batches
