"""Joins streams to training steps and runs them through the allocator: the peak and its parts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.prediction import caching_allocator
from orchestrator.prediction.affine_stream import Allocation, Stream
from orchestrator.prediction.caching_allocator import Block, CachingAllocator
from orchestrator.prediction.gpus import Gpu

_REPLAYED_MICRO_BATCHES = 3
"""Micro-batches of an accumulation: the second adds to gradients, later ones repeat it."""
Key = tuple[int, int]
"""An allocation: the run of a stream, and its number in the stream."""


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


def replay(trial: TrialStreams, gpu: Gpu) -> ReplayedPeaks:
    """The peaks of a few steps, after the model is built."""
    # The driver chooses the addresses of segments. Two orders show whether they matter.
    downwards = _Replay(gpu=gpu)
    downwards.train(trial)
    upwards = _Replay(gpu=gpu, allocator=CachingAllocator(upwards=True))
    upwards.train(trial)
    allocations = _step_allocations(trial)
    largest = max((own.nbytes(gpu) for own in allocations), default=0)
    return ReplayedPeaks(
        allocated=downwards.allocator.peak_allocated,
        reserved=downwards.allocator.peak_reserved + trial.reserved_elsewhere,
        reserved_upwards=upwards.allocator.peak_reserved + trial.reserved_elsewhere,
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
    blocks: dict[Key, tuple[Block | None, str]] = field(default_factory=dict)
    """Living allocations, each with its kind."""
    taken_once: set[str] = field(default_factory=set)
    by_kind: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes now."""
    at_peak: Counter[str] = field(default_factory=Counter)
    """Kind -> bytes at the peak so far."""
    is_of_evaluation: bool = False
    runs: int = 0

    def train(self, trial: TrialStreams) -> None:
        self.run(trial.model)
        # As the memory tracker does when the model is built.
        self.allocator.peak_allocated = self.allocator.allocated
        self.at_peak = self.by_kind.copy()
        # Optimizer states exist from the second step on; a third shows what fragmentation adds.
        for update in (trial.first_update, trial.update, trial.update):
            temporary = self._micro_batches(trial)
            self.run(update)
            # ``zero_grad``, and the step's batches go out of scope.
            for key in temporary:
                self.free(key)
        peak_of_training = self.allocator.peak_allocated
        if trial.evaluation is not None:
            # The second batch finds what the allocator kept of the first.
            for _ in range(2):
                for key in self.run(trial.evaluation):
                    self.free(key)
        self.is_of_evaluation = self.allocator.peak_allocated > peak_of_training

    def _micro_batches(self, trial: TrialStreams) -> list[Key]:
        """The micro-batches of a step; returns what they leave allocated."""
        left = self.run(trial.first)
        for _ in range(trial.accumulation - _REPLAYED_MICRO_BATCHES):
            left += self._inputs(trial.first)
        if trial.later is not None:
            for _ in range(min(trial.accumulation, _REPLAYED_MICRO_BATCHES) - 1):
                left += self.run(trial.later)
        return left

    def _inputs(self, stream: Stream) -> list[Key]:
        """The inputs alone: an accumulation fetches all its micro-batches before the first runs."""
        allocations = (event for event in stream.events if isinstance(event, Allocation))
        return self.run(Stream(events=tuple(own for own in allocations if own.kind == "inputs")))

    def run(self, stream: Stream) -> list[Key]:
        """Run a stream; returns what it leaves allocated, except what is kept for good."""
        self.runs += 1
        left: dict[Key, None] = {}
        for event in stream.events:
            # Numbers are unique within a stream, so the run tells streams apart.
            key = (self.runs, event.number)
            if not isinstance(event, Allocation):
                self.free(key)
                left.pop(key, None)
            elif not event.once:
                self._allocate(key, event)
                left[key] = None
            elif event.once not in self.taken_once:
                self.taken_once.add(event.once)
                self._allocate(key, event)
        return list(left)

    def _allocate(self, key: Key, event: Allocation) -> None:
        peak_before = self.allocator.peak_allocated
        block = self.allocator.allocate(event.nbytes(self.gpu))
        self.blocks[key] = (block, event.kind)
        if block is not None:
            self.by_kind[event.kind] += block.size
        if self.allocator.peak_allocated > peak_before:
            self.at_peak = self.by_kind.copy()

    def free(self, key: Key) -> None:
        """Give an allocation back, if it lives."""
        if key not in self.blocks:
            return
        block, kind = self.blocks.pop(key)
        if block is not None:
            self.by_kind[kind] -= block.size
        self.allocator.free(block)
