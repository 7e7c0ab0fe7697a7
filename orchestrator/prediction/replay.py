"""Joins streams to training steps and runs them through the allocator: the peak and its parts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.prediction import caching_allocator
from orchestrator.prediction.affine_stream import Allocation, Stream
from orchestrator.prediction.caching_allocator import Block, CachingAllocator
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.length_streams import SizedStream

_REPLAYED_MICRO_BATCHES = 3
"""Micro-batches of an accumulation: the second adds to gradients, later ones repeat it."""
Held = tuple[Block | None, str]
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


def replay(trial: TrialStreams, gpu: Gpu, *, upwards: bool = True) -> ReplayedPeaks:
    """The peaks of a few steps, or of those given, after the model is built.

    The driver chooses the addresses of segments. With ``upwards`` a second order shows whether they
    matter.
    """
    downwards = _Replay(gpu=gpu)
    downwards.train(trial)
    other = downwards
    if upwards:
        other = _Replay(gpu=gpu, allocator=CachingAllocator(upwards=True))
        other.train(trial)
    allocations = _step_allocations(trial)
    largest = max((own.nbytes(gpu) for own in allocations), default=0)
    return ReplayedPeaks(
        allocated=downwards.allocator.peak_allocated,
        reserved=downwards.allocator.peak_reserved + trial.reserved_elsewhere,
        reserved_upwards=other.allocator.peak_reserved + trial.reserved_elsewhere,
        at_peak={kind: nbytes for kind, nbytes in downwards.at_peak.items() if nbytes},
        is_of_evaluation=downwards.is_of_evaluation,
        largest_block=caching_allocator.segment_bytes(caching_allocator.rounded(largest)),
        kernel_workspaces=_kernel_workspaces(allocations, gpu),
    )


def _step_allocations(trial: TrialStreams) -> list[Allocation]:
    """The allocations of a step and of an evaluation, without those of the model."""
    streams = (trial.first, trial.later, trial.first_update, trial.update, trial.evaluation)
    events = (event for stream in streams if stream is not None for event in stream.events)
    return [event for event in events if isinstance(event, Allocation)]


def _kernel_workspaces(allocations: Sequence[Allocation], gpu: Gpu) -> int:
    """What depends on the kernels that a GPU picks: the largest workspace, and the libraries'."""
    kernels = [own.nbytes(gpu) for own in allocations if own.kind == "kernel workspaces"]
    libraries = {own.once: own.nbytes(gpu) for own in allocations if own.once}
    return max(kernels, default=0) + sum(libraries.values())


@dataclass(slots=True)
class _Replay:
    gpu: Gpu
    allocator: CachingAllocator = field(default_factory=CachingAllocator)
    taken_once: set[str] = field(default_factory=set)
    by_kind: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes now."""
    at_peak: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes at the peak so far."""
    is_of_evaluation: bool = False

    def train(self, trial: TrialStreams) -> None:
        self.run(self.sized(trial.model))
        # As the memory tracker does when the model is built.
        self.allocator.peak_allocated = self.allocator.allocated
        self.at_peak = self.by_kind.copy()
        update, later = self.sized(trial.first_update), self.sized(trial.update)
        # Optimizer states exist from the second step on; a third shows what fragmentation adds.
        for micro_batches in trial.steps or [self._equal_micro_batches(trial)] * 3:
            temporary = [held for own in micro_batches for held in self.run(own)]
            self.run(update)
            # ``zero_grad``, and the step's batches go out of scope.
            self.free(temporary)
            update = later
        peak_of_training = self.allocator.peak_allocated
        if trial.evaluation is not None:
            # The second batch finds what the allocator kept of the first.
            for _ in range(2):
                self.free(self.run(self.sized(trial.evaluation)))
        self.is_of_evaluation = self.allocator.peak_allocated > peak_of_training

    def sized(self, stream: Stream) -> SizedStream:
        return SizedStream.of(stream, self.gpu)

    def _equal_micro_batches(self, trial: TrialStreams) -> list[SizedStream]:
        """Those of a step, of which many are replaced by their inputs alone: an accumulation
        fetches all its micro-batches before the first runs."""
        inputs = (event for event in trial.first.events if isinstance(event, Allocation))
        alone = Stream(events=tuple(own for own in inputs if own.kind == "inputs"))
        micro_batches = [self.sized(trial.first)]
        micro_batches += [self.sized(alone)] * (trial.accumulation - _REPLAYED_MICRO_BATCHES)
        if trial.later is not None:
            repeated = min(trial.accumulation, _REPLAYED_MICRO_BATCHES) - 1
            micro_batches += [self.sized(trial.later)] * repeated
        return micro_batches

    def run(self, stream: SizedStream) -> list[Held]:
        """Run a stream; returns what it leaves allocated, except what is kept for good."""
        living: dict[int, Held] = {}
        for event, nbytes in zip(stream.events, stream.sizes, strict=True):
            if not isinstance(event, Allocation):
                # What the trial keeps for good has no number here.
                if event.number in living:
                    self.free([living.pop(event.number)])
            elif not event.once:
                living[event.number] = self._allocate(event, nbytes)
            elif event.once not in self.taken_once:
                self.taken_once.add(event.once)
                self._allocate(event, nbytes)
        return list(living.values())

    def _allocate(self, event: Allocation, nbytes: int) -> Held:
        peak_before = self.allocator.peak_allocated
        block = self.allocator.allocate(nbytes, event.cuda_stream)
        if block is not None:
            self.by_kind[event.kind] += block.size
        if self.allocator.peak_allocated > peak_before:
            self.at_peak = self.by_kind.copy()
        return block, event.kind

    def free(self, held: Iterable[Held]) -> None:
        """Give allocations back."""
        for block, kind in held:
            if block is not None:
                self.by_kind[kind] -= block.size
                self.allocator.free(block)
