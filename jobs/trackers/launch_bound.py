"""LaunchBound: forward passes and updates that the GPU was done with as soon as they were launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Moment, Phase, Tracker
from jobs.trackers.sources import cuda_events
from jobs.trackers.sources.cuda_events import Place

if TYPE_CHECKING:
    import torch


_BEGINS: Mapping[Phase, str] = {"forward": "forward", "clipping": "update", "optimizer": "update"}


class LaunchBound(Tracker):
    """A loop that waits for each loss begins every forward pass, and every update, with nothing queued; the Trainer
    does: is it a number?

    A host that launches such a pass more slowly than the GPU works is hidden by the backward pass, which it launches
    faster, and at whose end the GPU is asked whether it ran dry (``Steps``). So is one that is slow with the update
    (clipping and optimizer), which comes after.

    ::

        host  │ forward           │ backward  │ waits for the loss │ update      │
        GPU   │ ▪  ▪  ▪  ▪  ▪  ▪  │▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪│ ▪  ▪  ▪  ▪  │
                                  └ its lag behind the host: none              └ none

    Nobody waits here: the lag is the time between two CUDA events less that between their launches, the first at a
    place where the GPU was seen to be idle.
    """

    columns: ClassVar = (
        Column(
            "launch_bound_forward_share",
            "float64",
            "share of the counted time in forward passes that the GPU was done with as soon as they were launched:"
            " up to so much of it the GPU waited for the host",
        ),
        Column(
            "launch_bound_update_share", "float64", "the same of updates: clipping and optimizer"
        ),
    )

    def __init__(self) -> None:
        self._idle: Place | None = None
        self._last: torch.cuda.Event | None = None
        self._phase: Phase | None = None
        self._begun: dict[str, Place] = {}
        self._stretches: list[_Stretch] = []
        self._shares: dict[str, float] = {}

    def at(self, moment: Moment, seconds: float) -> None:
        import torch

        if moment is Moment.TRAIN_BEGIN and torch.cuda.is_initialized():
            self._idle = Place.here()

    def phase(self, name: Phase) -> None:
        if self._idle is None:
            return
        before, self._phase = self._phase, name
        part = _BEGINS.get(name)
        if part is not None and part not in self._begun:
            self._begin(part)
        elif name == "backward":
            self._over("forward", self._idle)
        elif before == "optimizer":
            self._over("update", self._idle)

    def loss(self, value: torch.Tensor) -> None:
        self._launched()

    def step_end(self) -> None:
        self._launched()

    def counted(self, begin: float, end: float) -> None:
        if self._stretches:
            dry = [
                one for one in self._stretches if begin <= one.begin.seconds <= end and one.is_dry
            ]
            self._shares = {
                f"launch_bound_{part}_share": sum(one.seconds for one in dry if one.part == part)
                / (end - begin)
                for part in ("forward", "update")
            }

    def measurements(self) -> Mapping[str, Any]:
        return self._shares

    def _begin(self, part: str) -> None:
        # Since the last event nothing that takes long was launched.
        is_idle = self._last is not None and self._last.query()
        self._begun[part] = here = Place.here()
        self._last = None
        if is_idle:
            self._idle = here

    def _over(self, part: str, idle: Place) -> None:
        if (begin := self._begun.pop(part, None)) is not None:
            self._stretches.append(_Stretch(part, idle, begin, Place.here()))

    def _launched(self) -> None:
        if self._idle is not None:
            self._last = cuda_events.recorded()


_DRY_SECONDS = 200e-6
_LONG_SECONDS = 5.0
"""In which the clocks of host and GPU drift apart by less than that."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A forward pass or an update, and the last place before its end where the GPU was seen to be idle."""

    part: str
    idle: Place
    begin: Place
    end: Place

    @property
    def seconds(self) -> float:
        """What it took the GPU."""
        return self.begin.device_seconds_to(self.end)

    @property
    def is_dry(self) -> bool:
        """Whether the GPU had nothing left to do at its end; taken not to be so where nobody can tell."""
        return (
            self.end.seconds - self.idle.seconds < _LONG_SECONDS
            and self.idle.lag_at(self.end) < _DRY_SECONDS
        )
