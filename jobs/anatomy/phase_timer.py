"""Times the phases of whole steps: by CUDA events on a GPU, by the host's clock on a CPU."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jobs.trackers.sources import cuda_events
from jobs.trackers.tracker import Phase


@dataclass(frozen=True, slots=True)
class _Mark:
    """The beginning of a phase."""

    phase: Phase
    host_seconds: float
    event: torch.cuda.Event | None


class PhaseTimer:
    """Collects a mark at each phase change of each step."""

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._steps: list[list[_Mark]] = [[]]

    def mark(self, phase: Phase) -> None:
        """A phase begins now."""
        event = None
        if self._on_gpu:
            event = cuda_events.recorded()
        self._steps[-1].append(_Mark(phase, time.perf_counter(), event))

    def end_step(self) -> None:
        """The step is over; its end is the beginning of the next one."""
        self.mark("upkeep")
        self._steps.append([self._steps[-1][-1]])

    def median_seconds(self) -> dict[Phase, float]:
        """Phase -> its median seconds over all finished steps. The device must be idle.

        The median, because a single step can be held up by the host or by Python's garbage
        collector.
        """
        steps = [_seconds_by_phase(marks) for marks in self._steps if len(marks) > 1]
        # The phases of all steps, in the order in which they first appear.
        phases: list[Phase] = []
        for step in steps:
            phases += [phase for phase in step if phase not in phases]
        medians: dict[Phase, float] = {}
        for phase in phases:
            # A step that skipped the phase spent no time in it.
            medians[phase] = statistics.median(step.get(phase, 0.0) for step in steps)
        return medians


def _seconds_by_phase(marks: Sequence[_Mark]) -> dict[Phase, float]:
    """Phase -> seconds of one step: from each of its marks to the mark after it."""
    seconds: defaultdict[Phase, float] = defaultdict(float)
    for begin, end in itertools.pairwise(marks):
        # On a GPU, events: the host's clock would time the launches instead of the work.
        if begin.event is None or end.event is None:
            seconds[begin.phase] += end.host_seconds - begin.host_seconds
        else:
            seconds[begin.phase] += begin.event.elapsed_time(end.event) / 1000  # milliseconds
    return seconds
