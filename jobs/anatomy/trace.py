"""One training step as plain data. All times are nanoseconds on the profiler's clock."""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COMPILED = "compiled graphs"  # name for all modules that torch.compile compiled


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryEvent:
    """One allocation (``nbytes`` above zero) or release (``nbytes`` below zero)."""

    time: int
    address: int
    nbytes: int
    reserved: int  # bytes that the caching allocator held from the device; 0 on the host
    operator: str  # the operator that allocated
    copy_of: int  # address of the tensor that is copied to this block in another dtype; 0: none
    recomputed: bool  # allocated while a backward pass recomputed activations


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One kernel on the device. On a CPU: one operator, without the operators inside it."""

    begin: int
    end: int
    seconds: float
    kernel: str  # the kernel's name; empty on a CPU
    operator: str  # the operator that launched the kernel
    launched: int  # when the host launched it
    module: str = ""  # class of the module that called the operator, or whose backward pass did


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One operator call and its arguments' shapes; None: the argument is no tensor."""

    operator: str
    shapes: tuple[tuple[int, ...] | None, ...]
    recomputed: bool


class PhaseSpan(NamedTuple):
    """A phase of the loop (``jobs.trackers.tracker.Phase``)."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """One step, everything in order of time."""

    memory_events: Sequence[MemoryEvent] = ()
    work: Sequence[Work] = ()
    calls: Sequence[Call] = ()
    phases: Sequence[PhaseSpan] = ()
    repetitions: float = 1.0  # micro-batches of a real step for each micro-batch that was traced

    def weighted_work(self) -> Iterator[tuple[Work, str, float]]:
        """Each piece of work, the phase it was launched in, and its seconds in a whole step."""
        for work in self.work:
            phase = phase_at(self.phases, work.launched).name
            yield work, phase, work.seconds * phase_weight(phase, self.repetitions)


def phase_weight(phase: str, repetitions: float) -> float:
    """``repetitions`` for the passes over a micro-batch; 1 for what happens once a step."""
    return repetitions if phase in ("forward", "backward") else 1.0


def phase_at(phases: Sequence[PhaseSpan], time: int) -> PhaseSpan:
    """The last phase that had begun by ``time``; before the first, "upkeep" without length."""
    index = bisect.bisect_right(phases, time, key=lambda phase: phase.begin) - 1
    return phases[index] if index >= 0 else PhaseSpan("upkeep", 0, 0)
