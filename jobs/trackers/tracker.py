"""The interface of trackers: a context manager around the trial, with declared columns."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from jobs.record import Column

if TYPE_CHECKING:
    import torch


Phase = Literal["data", "forward", "backward", "clipping", "optimizer", "upkeep"]
"""What a training loop is doing. ``upkeep`` is all else: logging, schedules, zeroing gradients."""


class Moment(enum.StrEnum):
    """The moments of a trial, in order; the device is idle at each.

    ::

        CONTEXT ─► MODEL ─► TRAIN_BEGIN ─► warm-up, steps ─► TRAIN_END
        CUDA       weights on
        context    the device
    """

    CONTEXT = "context"
    MODEL = "model"
    TRAIN_BEGIN = "train_begin"
    TRAIN_END = "train_end"


class Tracker:
    """One instrument. A subclass declares ``columns`` and overrides the hooks that it needs. A hook
    must not allocate on the device, or the trial's memory would include its instrument's. All times
    are seconds of ``time.perf_counter``."""

    columns: ClassVar[tuple[Column, ...]] = ()

    @classmethod
    def among(cls, trackers: Iterable[Tracker]) -> Self:
        """The tracker of this class; StopIteration if there is none."""
        return next(tracker for tracker in trackers if isinstance(tracker, cls))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """The trial is over, well or not: give back what the instrument holds."""

    def start(self, context_bytes: int) -> None:
        """The trial begins; ``context_bytes`` are of a CUDA context that was made ahead of it."""

    def at(self, moment: Moment, seconds: float) -> None:
        """The trial reached a moment, at the time ``seconds``. The device is idle."""

    def step_begin(self, warmup_left: int) -> None:
        """A step begins; ``warmup_left`` steps of warm-up remain, this one included."""

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""

    def phase(self, name: Phase) -> None:
        """The loop enters a phase."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch, whose tensors are on the device, is about to be trained on."""

    def loss(self, value: torch.Tensor) -> None:
        """The loss of the last micro-batch: a device scalar that may not be computed yet."""

    def step_end(self) -> None:
        """The host issued an optimizer step; the device may still be at work on it."""

    def counted(self, begin: float, end: float) -> None:
        """The counted steps took place between these times; called once, on an idle device."""

    def measurements(self) -> Mapping[str, Any]:
        """Column -> value, for the columns that are measured so far."""
        return {}

    def series(self) -> Mapping[str, list[float]]:
        """Column of the steps table -> one value per optimizer step, warm-up included."""
        return {}


def notify(trackers: Sequence[Tracker], moment: Moment, device: torch.device | None = None) -> None:
    """Wait for the device if there is one, then notify every tracker."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    now = time.perf_counter()
    for tracker in trackers:
        tracker.at(moment, now)
