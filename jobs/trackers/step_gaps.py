"""The gap between two steps: from the end of an update to the next step's first forward pass.

::

    host  │ update │ upkeep: schedule, logging, callbacks │ data │ inputs │ forward
    GPU   │ ▪▪▪▪▪▪▪▪▪ │                gap                          │▪▪│ ▪▪▪▪▪▪
                      └ event                             copies ┘    └ event
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from jobs.record import Column
from jobs.trackers.sources.cuda_events import LaunchPoint

COLUMNS = (
    Column.seconds(
        "step_gap_seconds_median",
        "Median time on the GPU between two steps, from the end of an update to the next step's "
        "first forward pass; the GPU idles then, but for copies of inputs and small kernels",
    ),
    Column.number("step_gap_share", "Share of the counted time in the gaps between steps"),
    Column.seconds(
        "step_gap_host_seconds_median",
        "Median time on the host between the launches at the two ends of a gap",
    ),
    Column.seconds(
        "step_gap_upkeep_seconds_median",
        "Median part of that host time before the wait for data: learning-rate schedule, zeroing "
        "gradients, logging and callbacks (the wait is data_seconds_median; the rest prepares the "
        "inputs)",
    ),
)


class _Gap(NamedTuple):
    """One gap, by both clocks."""

    update_end: LaunchPoint
    data_begin_seconds: float
    """When the host turned to the next step's data (``time.perf_counter``)."""
    forward_begin: LaunchPoint


class StepGaps:
    """Collects a gap for each step, from points that were recorded anyway.

    It synchronises nothing and records no events itself. An accumulating step has one gap, before
    its first micro-batch. If a step has several updates, the last one counts. With DeepSpeed the
    engine updates first, and the Trainer's own update then does nothing.
    """

    def __init__(self) -> None:
        self._last_update_end: LaunchPoint | None = None
        """End of the last update so far in the current step; None: no update yet."""
        self._open_since: LaunchPoint | None = None
        """Where the open gap began. The next forward pass ends it. None: no gap is open."""
        self._data_begin_seconds: float | None = None
        self._gaps: list[_Gap] = []

    def update_ended(self, point: LaunchPoint) -> None:
        """An update was launched; ``point`` comes right after it."""
        self._last_update_end = point

    def step_ended(self) -> None:
        """The step is over: the gap began at the end of its last update."""
        self._open_since = self._last_update_end
        self._last_update_end = None
        self._data_begin_seconds = None

    def data_begins(self) -> None:
        """The loop turns to the data of its next micro-batches."""
        if self._open_since is not None and self._data_begin_seconds is None:
            self._data_begin_seconds = time.perf_counter()

    def forward_begins(self, point: LaunchPoint) -> None:
        """A forward pass is launched; ``point`` is before it. It ends a gap if one is open."""
        if self._open_since is None:
            return
        data_begin_seconds = self._data_begin_seconds
        if data_begin_seconds is None:  # the loop reports no phase for its data
            data_begin_seconds = point.seconds
        self._gaps.append(_Gap(self._open_since, data_begin_seconds, point))
        self._open_since = None

    def figures(self, begin: float, end: float) -> dict[str, float]:
        """The columns, over the gaps of the steps between ``begin`` and ``end``.

        Both are in seconds of ``time.perf_counter``. Empty if no gap ended between them. The device
        must have reached all points.
        """
        # A gap belongs to the step that it delays.
        gaps = [gap for gap in self._gaps if begin <= gap.forward_begin.seconds <= end]
        if not gaps:
            return {}
        device = [gap.update_end.device_seconds_to(gap.forward_begin) for gap in gaps]
        host = [gap.forward_begin.seconds - gap.update_end.seconds for gap in gaps]
        upkeep = [gap.data_begin_seconds - gap.update_end.seconds for gap in gaps]
        return {
            # The median, because one step may wait for a garbage collection or a new epoch.
            "step_gap_seconds_median": statistics.median(device),
            # A share of all counted time, so that it adds up with the launch-bound shares.
            "step_gap_share": sum(device) / (end - begin),
            "step_gap_host_seconds_median": statistics.median(host),
            "step_gap_upkeep_seconds_median": statistics.median(upkeep),
        }
