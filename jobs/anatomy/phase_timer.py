"""Times the phases of whole steps: by CUDA events on a GPU, by the host's clock on a CPU."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch

from jobs.trackers.sources import cuda_events
from jobs.trackers.tracker import Phase


class PhaseTimer:
    """Collects a mark at each phase change of each step."""

    def __init__(self, *, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._steps: list[list[_Mark]] = [[]]

    def mark(self, phase: Phase) -> None:
        """A phase begins now."""
        event = cuda_events.recorded() if self._on_gpu else None
        self._steps[-1].append(_Mark(phase, time.perf_counter(), event))

    def end_step(self) -> None:
        """The step is over; its end is the beginning of the next one."""
        self.mark("upkeep")
        self._steps.append([self._steps[-1][-1]])

    def median_seconds(self) -> dict[Phase, float]:
        """Phase -> its median seconds over all finished steps. The device must be idle.

        The median, because a single step can be held up by the host or by Python's garbage
        collector. A step that skipped a phase spent no time in it.
        """
        steps = [_seconds_by_phase(marks) for marks in self._steps if len(marks) > 1]
        phases = dict.fromkeys(phase for step in steps for phase in step)
        return {name: statistics.median(step.get(name, 0.0) for step in steps) for name in phases}


class _Mark(NamedTuple):
    """The beginning of a phase."""

    phase: Phase
    host_seconds: float
    event: torch.cuda.Event | None


def _seconds_by_phase(marks: Sequence[_Mark]) -> dict[Phase, float]:
    """Phase -> seconds of one step: from each of its marks to the mark after it."""
    seconds: defaultdict[Phase, float] = defaultdict(float)
    for begin, end in itertools.pairwise(marks):
        # On a GPU, events: the host's clock would time the launches instead of the work.
        if begin.event is None or end.event is None:
            seconds[begin.phase] += end.host_seconds - begin.host_seconds
        else:
            seconds[begin.phase] += cuda_events.seconds_between((begin.event, end.event))[0]
    return seconds
