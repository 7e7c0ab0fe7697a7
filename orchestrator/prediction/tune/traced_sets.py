"""The largest micro-batches of sets of techniques that fit a memory, forecast from one trace."""

from __future__ import annotations

import bisect
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jobs.spec import TrialSpec
from orchestrator.prediction.bounds import traceable
from orchestrator.prediction.estimator import longest_rows_group, quiet_libraries, traced_step
from orchestrator.prediction.gpus import Gpu
from orchestrator.prediction.model_group import ModelGroup
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.time.operations import StepWork
from orchestrator.prediction.time.ranks_time import time_of
from orchestrator.prediction.time.step_time import StepTime
from orchestrator.prediction.tune.worth_tracing import Sets
from orchestrator.prediction.unsupported import has_packed_base, has_timed_step, triton_libraries

if TYPE_CHECKING:
    from orchestrator.prediction.tracing.compiled_block import CompiledBlock


@dataclass(frozen=True, slots=True)
class CompiledMemory:
    """Of trials that share traces."""

    group: ModelGroup
    _blocks: dict[int, CompiledBlock] = field(default_factory=dict)
    """By micro-batch."""

    def kept(self, spec: TrialSpec) -> float:
        """Share of the activations that are saved without compiling; 1 if that is not known."""
        simpler = traceable(spec).spec
        # A packed base is no input of a graph, and kernels of triton are none of its operators.
        if has_packed_base(simpler) or triton_libraries(spec):
            return 1.0
        if simpler.settings.training_arguments.get("gradient_checkpointing"):
            return 1.0  # of a checkpointed block only the inputs are kept, compiled or not
        partitioner = spec.settings.hooks.get("partitioner")
        budget = 1.0 if partitioner is None else float(partitioner.arguments["budget"])
        # As between traces, sizes are affine in the micro-batch.
        low, high = self.group.affine[0], self.group.affine[-1]
        try:
            saved = self.group.first(simpler).saved_bytes
            layers = int(getattr(self.group.step.model.config, "num_hidden_layers", 1))
            least, most = (self._of_block(size, budget) for size in (low, high))
        except Exception:  # a layer may hold what no partition takes
            return 1.0
        position = (spec.micro_batch - low) / (high - low) if high > low else 0.0
        return max(1.0, least + (most - least) * position) * layers / max(1, saved)

    def _of_block(self, samples: int, budget: float) -> int:
        from orchestrator.prediction.tracing.compiled_block import compiled_block

        if samples not in self._blocks:
            step = self.group.step
            batch = step.batches.worst(samples)
            block = compiled_block(step.shallow, batch, self.group.shared.blocks)
            self._blocks[samples] = block
        return self._blocks[samples].saved_bytes(budget)


Asked = Sequence[tuple[Gpu, int]]
"""Cards, each with the memory (bytes) that a trial may take of it."""
_FURTHEST = 4
"""So many times the largest micro-batch that is known to fit is the next that is asked for."""
_TIMED_SIZES = 3
"""The largest micro-batches that fit, of which the fastest is taken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedCandidate:
    """A set of techniques at one of its micro-batches."""

    spec: TrialSpec
    device_bytes: int
    """Upper end of what NVML would see; the likely figure of compiled code, or of all."""
    is_of_longest: bool = False
    """Whether that is of the longest of rows of unequal length alone."""
    step: StepWork | None
    time: StepTime | None
    """None if it is not known, as of states on the host."""

    @property
    def seconds_per_sample(self) -> float:
        return math.inf if self.time is None else self.time.likely_seconds_per_sample


def of_trace(sets: Sets, asked: Asked, shared: Shared) -> Iterator[list[list[TracedCandidate]]]:
    """Of each set the largest micro-batches that fit, for each memory. Raises what a trace does."""
    simpler = [traceable(spec).spec for spec in itertools.chain(*sets)]
    with traced_step(simpler[0], asked[0][0], shared) as step:
        group = longest_rows_group(simpler, step, asked[0][0], shared)
        traced = TracedSets(group, CompiledMemory(group))
        for specs in sets:
            yield [traced.fitting(specs, *own) for own in asked]


@dataclass(frozen=True, slots=True)
class TracedSets:
    """Sets that share traces."""

    group: ModelGroup
    compiled: CompiledMemory

    def fitting(
        self, specs: Sequence[TrialSpec], gpu: Gpu, memory_bytes: int
    ) -> list[TracedCandidate]:
        """The largest micro-batches of a set that fit, of which one is the fastest. ``specs``: the
        smallest first."""
        fitting = _how_many_fit(specs, memory_bytes, self.device_bytes)
        found = []
        for spec in specs[max(0, fitting - _TIMED_SIZES) : fitting]:
            step = self.step(spec)
            own = TracedCandidate(
                spec=spec,
                device_bytes=self.device_bytes(spec),
                is_of_longest=self.group.step.batches.ragged is not None,
                step=step,
                time=None if step is None else time_of(step, gpu),
            )
            found.append(own)
        return found

    def step(self, spec: TrialSpec) -> StepWork | None:
        """None if its time does not follow from its kernels, or these are not known."""
        if not has_timed_step(spec):
            return None
        simpler = traceable(spec)
        try:
            return simpler.step(self.group.step_work(simpler.spec))
        except Exception:  # a kernel may refuse the inputs
            return None

    def device_bytes(self, spec: TrialSpec) -> int:
        """The memory of the GPU: its upper end, or of a compiled trial the likely figure. More than
        any GPU has, if it is not known."""
        simpler = traceable(spec)
        kept = self.compiled.kept(spec) if simpler.is_compiled else 0.0
        device = self.group.memory(simpler.spec, kept=kept).device
        if device is None:
            return sys.maxsize
        return device.bytes if kept or self.group.shared.is_likely else device.most


def _how_many_fit(
    specs: Sequence[TrialSpec], memory_bytes: int, device_bytes: Callable[[TrialSpec], int]
) -> int:
    """How many of a set's micro-batches fit, which are the smallest: memory grows with the size,
    about as a line does, so that few of them are asked for."""
    sizes = [spec.micro_batch for spec in specs]
    known: dict[int, int] = {}
    """Size -> its memory (bytes), where that is known."""
    fits, beyond = 0, len(specs)
    while fits < beyond:
        fitting = sizes[fits - 1] if fits else sizes[0]
        likely = 2 * fitting
        if len(known) > 1:
            (less, low), (more, high) = sorted(known.items())[-2:]
            # Not far beyond what is known, because other parts of the memory may lead there.
            likely = _FURTHEST * fitting
            if low < high:  # as a line goes on through the largest two
                by_line = less + (memory_bytes - low) / (high - low) * (more - less)
                likely = min(likely, int(by_line))
        asked = min(max(bisect.bisect(sizes, likely) - 1, fits), beyond - 1)
        if beyond < len(specs) and len(known) % 3 == 2:
            # A line below a bend creeps, so at times the middle is taken.
            asked = (fits + beyond) // 2
        needed = device_bytes(specs[asked])
        if needed < sys.maxsize:
            known[sizes[asked]] = needed
        if needed <= memory_bytes:
            fits = asked + 1
        else:
            beyond = asked
    return fits


def with_epoch(own: TracedCandidate, gpu: Gpu, shared: Shared) -> TracedCandidate:
    """The candidate, whose memory is that of an epoch of all rows."""
    simpler = traceable(own.spec).spec
    with quiet_libraries(), traced_step(simpler, gpu, shared) as step:
        group = ModelGroup([simpler], step, gpu, shared, has_trial=False)
        traced = TracedSets(group, CompiledMemory(group))
        device_bytes = traced.device_bytes(own.spec)
    return replace(own, device_bytes=device_bytes, is_of_longest=False)
