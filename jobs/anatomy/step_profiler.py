"""Trains extra steps for an anatomy: times some of them phase by phase, and profiles the last."""

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch

from jobs.anatomy.memory.live_tensors import LiveTensor, nested_tensors
from jobs.anatomy.memory.timeline import KnownBlocks
from jobs.anatomy.trace import phase_weight
from jobs.anatomy.trace_reader import PHASE
from jobs.loops.meter import Listener
from jobs.trackers.sources import cuda_events
from jobs.trackers.tracker import Phase

TRAINED_MICRO_BATCHES = 2
"""Of each step; gradients exist only from the second on."""


@dataclass(eq=False)
class StepProfiler(Listener):
    """Times ``timed_steps`` steps (0: the profiled one), then profiles one step. All micro-batches
    of a step are fetched, but only the last two are trained on. The wait for data is at most
    ``usual_data_wait``, because the first extra step restarts workers."""

    find_live_tensors: Callable[[], list[LiveTensor]]
    module_ranges: AbstractContextManager[None]
    _: KW_ONLY
    on_gpu: bool
    timed_steps: int
    usual_data_wait: float

    def __post_init__(self) -> None:
        self._timer = PhaseTimer(on_gpu=self.on_gpu)
        self._is_timing = False
        self._finished_steps = 0
        self._micro_batches = 0
        self._range: torch.autograd.profiler.record_function | None = None
        self._phase: Phase = "upkeep"
        self._blocks_before: dict[int, int] = {}
        self._inputs: set[int] = set()
        self._live_tensors: dict[int, LiveTensor] = {}
        self.profile: torch.profiler.profile | None = None
        self.phase_seconds: Mapping[str, float] = {}  # of one step that was not profiled
        self.repetitions = 1.0  # micro-batches of a step for each that was trained

    @property
    def live_tensors(self) -> list[LiveTensor]:
        """What exists between steps, and the gradients after each backward pass."""
        return list(self._live_tensors.values())

    def known_blocks(self) -> KnownBlocks:
        """What the addresses in the trace are used for. Releases cuBLAS's workspaces."""
        name_of = {tensor.address: tensor.name for tensor in self.live_tensors}
        gradients = {address for address, name in name_of.items() if name == "gradients"}
        others = {address: name for address, name in name_of.items() if name != "gradients"}
        weights = ("weights", "LoRA adapters")
        return KnownBlocks(
            before=self._blocks_before,
            names=others | self._library_workspaces(),
            gradients=gradients,
            inputs=self._inputs,
            parameters={address for address, name in name_of.items() if name in weights},
        )

    def train_begin(self) -> None:
        if self.timed_steps == 0:
            self._start_profile()
        self._synchronize()
        self._is_timing = True
        self._timer.mark("upkeep")

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        self._micro_batches += 1
        if self.profile is not None:
            tensors = nested_tensors(dict(inputs))
            self._inputs |= {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def wants(self, left: int) -> bool:
        return left < TRAINED_MICRO_BATCHES

    def phase(self, name: Phase) -> None:
        if self._is_timing:
            self._timer.mark(name)
        if self._range is not None:
            self._range.__exit__(None, None, None)
            if self._phase == "backward":
                self._update_live_tensors()
            self._open_range(name)
        self._phase = name

    def step_end(self) -> bool:
        """Note the end of a step. True after the profiled step: stop training."""
        self._finished_steps += 1
        # At least 1: a step without accumulation has a single micro-batch, which is trained on.
        self.repetitions = max(1.0, self._micro_batches / TRAINED_MICRO_BATCHES)
        self._micro_batches = 0
        if self._is_timing:
            self._timer.end_step()
        # If no step is run for timing alone, the first step is timed: the profiled one.
        if self._finished_steps == max(1, self.timed_steps):
            self._synchronize()
            self._is_timing = False
            self.phase_seconds = self._seconds_of_a_step()
        if self.profile is not None:
            self._stop_profile()
            return True
        if self._finished_steps == self.timed_steps:
            self._start_profile()
        return False

    def _seconds_of_a_step(self) -> dict[str, float]:
        seconds: dict[str, float] = {
            phase: median * phase_weight(phase, self.repetitions)
            for phase, median in self._timer.median_seconds().items()
        }
        seconds["data"] = min(seconds.get("data", 0.0), self.usual_data_wait)
        return seconds

    def _start_profile(self) -> None:
        """Note what is allocated, then begin the profile. The device is idle in between."""
        self._synchronize()
        self._update_live_tensors()
        if self.on_gpu:
            self._blocks_before = _allocated_blocks()
        else:  # a CPU has no allocator that lists its blocks
            on_host = [tensor for tensor in self.live_tensors if tensor.device == "cpu"]
            self._blocks_before = {tensor.address: tensor.nbytes for tensor in on_host}
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.profile = torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=True
        )
        self.profile.__enter__()
        self.module_ranges.__enter__()
        self._open_range("upkeep")

    def _stop_profile(self) -> None:
        assert self.profile is not None
        assert self._range is not None
        self._range.__exit__(None, None, None)
        self._range = None
        self.module_ranges.__exit__(None, None, None)
        self._synchronize()
        self.profile.__exit__(None, None, None)
        self._update_live_tensors()

    def _open_range(self, phase: Phase) -> None:
        self._range = torch.autograd.profiler.record_function(PHASE + phase)
        self._range.__enter__()

    def _update_live_tensors(self) -> None:
        """Add the tensors that exist now. An address keeps the name that it had first."""
        now = {tensor.address: tensor for tensor in self.find_live_tensors()}
        self._live_tensors = now | self._live_tensors

    def _synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def _library_workspaces(self) -> dict[int, str]:
        """Address -> name of cuBLAS's workspaces: the blocks that go when they are released."""
        if not self.on_gpu:
            return {}
        before = _allocated_blocks()
        torch._C._cuda_clearCublasWorkspaces()
        # Nothing else runs meanwhile, so every block that has gone was a workspace.
        released = before.keys() - _allocated_blocks().keys()
        return dict.fromkeys(released, "library workspaces")


def _allocated_blocks() -> dict[int, int]:
    """Address -> bytes."""
    segments: Any = torch.cuda.memory_snapshot()
    blocks = (block for segment in segments for block in segment["blocks"])
    return {
        block["address"]: block["size"] for block in blocks if block["state"] == "active_allocated"
    }


class PhaseTimer:
    def __init__(self, *, on_gpu: bool) -> None:
        # On a GPU, events: the host's clock would time the launches instead of the work.
        self._now: Callable[[], Any] = cuda_events.recorded if on_gpu else time.perf_counter
        self._steps: list[list[tuple[Phase, Any]]] = [[]]

    def mark(self, phase: Phase) -> None:
        self._steps[-1].append((phase, self._now()))

    def end_step(self) -> None:
        """The step is over; its end is the beginning of the next one."""
        self.mark("upkeep")
        self._steps.append([self._steps[-1][-1]])

    def median_seconds(self) -> dict[Phase, float]:
        """Phase -> its median seconds over the finished steps. The device must be idle."""
        steps = [_seconds_by_phase(marks) for marks in self._steps if len(marks) > 1]
        phases = dict.fromkeys(phase for step in steps for phase in step)
        return {name: statistics.median(step.get(name, 0.0) for step in steps) for name in phases}


def _seconds_by_phase(marks: Sequence[tuple[Phase, Any]]) -> dict[Phase, float]:
    seconds: defaultdict[Phase, float] = defaultdict(float)
    for (phase, begin), (_, end) in itertools.pairwise(marks):
        is_event = not isinstance(begin, float)
        seconds[phase] += cuda_events.seconds_between((begin, end))[0] if is_event else end - begin
    return seconds
