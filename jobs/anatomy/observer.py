"""The pass itself: as few more steps of the same loop as tell, timed phase by phase, the last under the profiler."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from jobs.anatomy.memory.live_tensors import Resident, tensors
from jobs.anatomy.memory.timeline import Known
from jobs.anatomy.trace import PHASE, weight
from jobs.trackers.base import Phase

TRAINED = 2
"""Micro-batches of a step that are trained on: each is like the others, and from the second on gradients are there."""


class Observer:
    """A ``Listener`` that times ``timed_steps`` steps, then profiles one; with 0 the one that is profiled is timed.

    Of a step's micro-batches, all of which are fetched, the last two are trained on. Between timing and profiling the
    device is waited for, which no counted step ever is: those are over. Iterators and worker processes start anew with
    the first step, so that no more of a step's wait for data is believed than ``usual_wait``, that of a counted step.
    ``held`` says what there is from step to step; in ``modules`` the profiler is told which module is at work.
    """

    def __init__(
        self,
        held: Callable[[], list[Resident]],
        modules: AbstractContextManager[None],
        *,
        on_gpu: bool,
        timed_steps: int,
        usual_wait: float,
    ) -> None:
        self._held, self._modules, self._on_gpu = held, modules, on_gpu
        self._timed_steps, self._usual_wait = timed_steps, usual_wait
        self._step = self._micro_batches = 0
        self._marks: list[list[tuple[Phase, float, torch.cuda.Event | None]]] = [[]]
        self._is_timing = False
        self._range: torch.autograd.profiler.record_function | None = None
        self._phase: Phase = "upkeep"
        self._before: dict[int, int] = {}
        self._inputs: set[int] = set()
        self._residents: dict[int, Resident] = {}
        self.profile: torch.profiler.profile | None = None
        self.timed: Mapping[str, float] = {}
        """Phase -> seconds of one step."""
        self.times = 1.0
        """Micro-batches of a step for each that was trained on."""

    @property
    def residents(self) -> list[Resident]:
        """What was held from step to step, and the gradients there were after each backward pass."""
        return list(self._residents.values())

    def known(self) -> Known:
        """What the trace alone does not tell."""
        return Known(
            before=self._before,
            names={one.address: one.name for one in self.residents if one.name != "gradients"}
            | self._workspaces(),
            gradients={one.address for one in self.residents if one.name == "gradients"},
            inputs=self._inputs,
            parameters={
                one.address for one in self.residents if one.name in ("weights", "LoRA adapters")
            },
        )

    def train_begin(self) -> None:
        """The first step begins."""
        if not self._timed_steps:
            self._start()
        self._wait()
        self._is_timing = True
        self._mark("upkeep")

    def data_wait(self, seconds: float) -> None:
        """Told by ``phase`` already."""

    def loss(self, value: torch.Tensor) -> None:
        """Not looked at."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Its tensors are remembered by address."""
        self._micro_batches += 1
        if self.profile is not None:
            self._inputs |= {
                tensor.untyped_storage().data_ptr() for tensor in tensors(dict(inputs))
            }

    def wants(self, left: int) -> bool:
        """The last ones."""
        return left < TRAINED

    def phase(self, name: Phase) -> None:
        """Close the last phase, open the next."""
        if self._is_timing:
            self._mark(name)
        if self._range is not None:
            self._range.__exit__(None, None, None)
            if self._phase == "backward":
                self._look()
            self._open(name)
        self._phase = name

    def step_end(self) -> bool:
        """Some steps are timed, one is profiled."""
        self._step += 1
        self.times = max(1.0, self._micro_batches / TRAINED)
        self._micro_batches = 0
        if self._is_timing:
            self._mark("upkeep")
            self._marks.append([self._marks[-1][-1]])  # one step's end is the next one's beginning
        if self._step == max(1, self._timed_steps):
            self._wait()
            self._is_timing = False
            self.timed = self._seconds()
        if self.profile is not None:
            self._stop()
            return True
        if self._step == self._timed_steps:
            self._start()
        return False

    def _mark(self, name: Phase) -> None:
        event = None
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks[-1].append((name, time.perf_counter(), event))

    def _seconds(self) -> dict[str, float]:
        steps = [_by_phase(marks) for marks in self._marks if len(marks) > 1]
        names: set[Phase] = {name for step in steps for name in step}
        # The median: a step that the host, or Python's collector, held up for once tells of nothing.
        usual = {name: statistics.median(step.get(name, 0.0) for step in steps) for name in names}
        seconds: dict[str, float] = {
            name: each * weight(name, self.times) for name, each in usual.items()
        }
        return seconds | {"data": min(seconds.get("data", 0.0), self._usual_wait)}

    def _start(self) -> None:
        self._wait()
        self._look()
        if self._on_gpu:
            self._before = _blocks()
        else:
            self._before = {
                one.address: one.nbytes for one in self.residents if one.device == "cpu"
            }
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.profile = torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=True
        )
        self.profile.__enter__()
        self._modules.__enter__()
        self._open("upkeep")

    def _stop(self) -> None:
        assert self.profile is not None
        assert self._range is not None
        self._range.__exit__(None, None, None)
        self._range = None
        self._modules.__exit__(None, None, None)
        self._wait()
        self.profile.__exit__(None, None, None)
        self._look()

    def _open(self, name: Phase) -> None:
        self._range = torch.autograd.profiler.record_function(PHASE + name)
        self._range.__enter__()

    def _look(self) -> None:
        self._residents = {one.address: one for one in self._held()} | self._residents

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    def _workspaces(self) -> dict[int, str]:
        """cuBLAS's: what is gone when they are given back, which is done once nothing more is to be measured."""
        if not self._on_gpu:
            return {}
        before = _blocks()
        torch._C._cuda_clearCublasWorkspaces()
        return dict.fromkeys(before.keys() - _blocks().keys(), "library workspaces")


def _by_phase(marks: Sequence[tuple[Phase, float, torch.cuda.Event | None]]) -> dict[Phase, float]:
    seconds: defaultdict[Phase, float] = defaultdict(float)
    for (name, begin, first), (_, end, last) in itertools.pairwise(marks):
        seconds[name] += (
            end - begin if first is None or last is None else first.elapsed_time(last) / 1000
        )
    return seconds


def _blocks() -> dict[int, int]:
    """Address -> size of everything that the caching allocator has given out."""
    segments: Any = torch.cuda.memory_snapshot()
    blocks = (block for segment in segments for block in segment["blocks"])
    return {
        block["address"]: block["size"] for block in blocks if block["state"] == "active_allocated"
    }
