"""Launch-bound time: parts of passes, and updates, that end as soon as they are launched.

The launch points that show it also give the times of these parts, and the gaps between steps.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from jobs.record import Column
from jobs.trackers.sources import cuda_events
from jobs.trackers.sources.cuda_events import IDLE_LAG_SECONDS, LaunchPoint
from jobs.trackers.tracker import Moment, Phase, Tracker

if TYPE_CHECKING:
    import torch

StepPart = Literal["forward", "backward", "update"]
_PARTS: tuple[StepPart, ...] = ("forward", "backward", "update")
_PART_OF_PHASE: Mapping[Phase, StepPart] = {
    "forward": "forward",
    "backward": "backward",
    "clipping": "update",
    "optimizer": "update",
}


class LaunchBound(Tracker):
    """Measures how long the GPU waits for kernel launches in passes and updates.

    A loop that reads each loss, as the Trainer does to check for NaN, synchronises with the GPU. So
    every forward pass and every update (clipping and optimizer) begins with an empty queue. If the
    host launches such a part more slowly than the GPU runs it, the GPU idles.

    ::

        host  │ forward           │ backward  │ waits for the loss │ update      │
        GPU   │ ▪  ▪  ▪  ▪  ▪  ▪  │▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪│ ▪  ▪  ▪  ▪  │
                                  └ lag behind the host: none                  └ none

    A pass is divided where a stack of layers ends, because another may follow that takes the GPU
    longer: a decoder of few positions is launched more slowly than it runs, and its logits are not.

    The lag at the end of a part comes from two CUDA events: the time between them on the GPU, less
    the time between their launches. The first event is at a point where the GPU was seen to be
    idle, so the lag was zero there.

    The gap between two steps is measured between points that are recorded anyway. It begins behind
    the last update: DeepSpeed's engine updates first, and the Trainer's update does nothing then::

        host  │ update │ upkeep: schedule, logging, callbacks │ data │ inputs │ forward
        GPU   │ ▪▪▪▪▪▪▪▪▪ │                gap                          │▪▪│ ▪▪▪▪▪▪
                          └ event                             copies ┘    └ event
    """

    columns: ClassVar = (
        Column.number(
            "launch_bound_forward_share",
            "Share of the counted time in parts of forward passes that ended as soon as they were "
            "launched: an upper bound of the time in them that the GPU waited for the host",
        ),
        Column.number("launch_bound_backward_share", "The same for backward passes"),
        Column.number("launch_bound_update_share", "The same for updates (clipping and optimizer)"),
        Column.seconds(
            "forward_seconds_median", "Median GPU time of a counted step's forward passes"
        ),
        Column.seconds(
            "backward_seconds_median", "Median GPU time of a counted step's backward passes"
        ),
        Column.seconds("update_seconds_median", "Median GPU time of a counted step's update"),
        Column.seconds(
            "step_gap_seconds_median",
            "Median time on the GPU from the end of an update to the next step's first forward "
            "pass; the GPU idles then, but for copies of inputs and small kernels",
        ),
        Column.number("step_gap_share", "Share of the counted time in the gaps between steps"),
    )

    def __init__(self) -> None:
        self._idle_point: LaunchPoint | None = None
        """The last point at which the GPU was seen to be idle. None: not on a GPU."""
        self._last_event: torch.cuda.Event | None = None
        """An event after all long work that was launched so far; None: there is no such event."""
        self._phase: Phase | None = None
        self._begins: dict[StepPart, LaunchPoint] = {}
        self._spans: list[_Span] = []
        self._finished_steps = 0
        self._update_end: LaunchPoint | None = None
        """End of the last update so far in the current step."""
        self._gap_begin: LaunchPoint | None = None
        """Where the open gap began. The next forward pass ends it. None: no gap is open."""
        self._gaps: list[tuple[LaunchPoint, LaunchPoint]] = []
        """Where each gap between two steps began, and where the next forward pass ended it."""
        self._values: dict[str, float] = {}

    def at(self, moment: Moment, seconds: float) -> None:
        import torch

        if moment is Moment.TRAIN_BEGIN and torch.cuda.is_initialized():
            self._idle_point = LaunchPoint.now()

    def phase(self, name: Phase) -> None:
        """Begin or end a pass, an update, or the gap between two steps."""
        if self._idle_point is None:
            return
        previous = self._phase
        self._phase = name
        part = _PART_OF_PHASE.get(name)
        if previous == "backward":
            self._end("backward")
        if name == "backward":
            self._end("forward", then="backward")
        elif part is not None and part not in self._begins:
            self._begin(part)
        elif previous in ("clipping", "optimizer"):
            # Many small kernels of clipping come before the long ones of an optimizer.
            then: StepPart | None = "update" if previous == "clipping" else None
            self._end("update", then=then)

    def between_stacks(self) -> None:
        """A stack of layers ended in a forward pass, or begins in a backward pass."""
        if self._phase is not None and (part := _PART_OF_PHASE.get(self._phase)):
            self._end(part, then=part)

    def loss(self, value: torch.Tensor) -> None:
        self._record_event()

    def step_end(self) -> None:
        self._record_event()
        self._gap_begin, self._update_end = self._update_end, None
        self._finished_steps += 1

    def counted(self, begin: float, end: float) -> None:
        if not self._spans:
            return
        # By the host's clock, because ``begin`` and ``end`` are times of that clock.
        counted = [span for span in self._spans if begin <= span.begin.seconds <= end]
        for part in _PARTS:
            spans = [span for span in counted if span.part == part]
            seconds = sum((span.seconds for span in spans if span.is_launch_bound), 0.0)
            self._values[f"launch_bound_{part}_share"] = seconds / (end - begin)
            # An accumulating step has a forward pass for each micro-batch.
            by_step: defaultdict[int, float] = defaultdict(float)
            for span in spans:
                by_step[span.step] += span.seconds
            if spans:
                self._values[f"{part}_seconds_median"] = statistics.median(by_step.values())
        # A gap belongs to the step that it delays.
        gaps = [
            gap_begin.device_seconds_to(gap_end)
            for gap_begin, gap_end in self._gaps
            if begin <= gap_end.seconds <= end
        ]
        if gaps:
            self._values["step_gap_seconds_median"] = statistics.median(gaps)
            self._values["step_gap_share"] = sum(gaps) / (end - begin)

    def measurements(self) -> Mapping[str, Any]:
        return self._values

    def _begin(self, part: StepPart) -> None:
        # Nothing long was launched after the last event, so a GPU that has reached it is idle.
        is_idle = self._last_event is not None and self._last_event.query()
        here = LaunchPoint.now()
        self._begins[part] = here
        self._last_event = None
        if is_idle:
            self._idle_point = here
        if self._gap_begin is not None:
            self._gaps.append((self._gap_begin, here))
            self._gap_begin = None

    def _end(self, part: StepPart, then: StepPart | None = None) -> None:
        """End a part that began, and begin ``then`` at the same point."""
        begin = self._begins.pop(part, None)
        if begin is None or self._idle_point is None:
            return
        end = LaunchPoint.now()
        if then is not None:
            self._begins[then] = end
        self._spans.append(_Span(self._finished_steps, part, self._idle_point, begin, end))
        if part == "update":
            self._update_end = end

    def _record_event(self) -> None:
        if self._idle_point is not None:
            self._last_event = cuda_events.recorded()


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a pass, or an update, and the last point before its end where the GPU was idle."""

    step: int  # index of its step
    part: StepPart
    idle_point: LaunchPoint
    begin: LaunchPoint
    end: LaunchPoint

    @property
    def seconds(self) -> float:
        """How long the device took for it."""
        return self.begin.device_seconds_to(self.end)

    @property
    def is_launch_bound(self) -> bool:
        """Whether the GPU had nothing left to do at its end; False if the lag is not known."""
        seconds_since_idle = self.end.seconds - self.idle_point.seconds
        if seconds_since_idle >= 5.0:  # their clocks may have drifted by ``IDLE_LAG_SECONDS``
            return False
        # Without a lag, the last kernel ended as soon as it was launched.
        return self.idle_point.lag_at(self.end) < IDLE_LAG_SECONDS
