"""What a tracker is: a context manager around the trial with declared columns, told of each moment that passes."""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from jobs.record import Column

if TYPE_CHECKING:
    import torch


Phase = Literal["data", "forward", "backward", "clipping", "optimizer", "upkeep"]
"""What a loop is doing; ``upkeep`` is all its own: logging, schedules, freeing gradients."""


class Moment(enum.StrEnum):
    """The moments of a trial, in order; the device is idle at each.

    ::

        CONTEXT─►MODEL─►TRAIN_BEGIN─►(warm-up, onset, counted steps)─►TRAIN_END
        CUDA     weights on
        context  the device
    """

    CONTEXT = "context"
    MODEL = "model"
    TRAIN_BEGIN = "train_begin"
    TRAIN_END = "train_end"


@dataclass(frozen=True, slots=True)
class Held:
    """What a process held before its trial: of the GPU and of the host, for a CUDA context that was made ahead."""

    device_bytes: int = 0
    resident_bytes: int = 0


NOTHING = Held()


class Tracker:
    """One instrument. Subclasses declare ``columns`` and override what they listen to; every hook is optional.

    A hook must not allocate on the device: what is measured is the trial, not its observers.
    """

    columns: ClassVar[tuple[Column, ...]] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def start(self, held: Held) -> None:
        """The trial begins; what this process holds by now, it is to answer for."""

    def at(self, moment: Moment, seconds: float) -> None:
        """A moment has come, at ``seconds`` of a monotonic clock; the device is idle."""

    def step_begin(self, warmup_left: int) -> None:
        """A step begins; so many of the warm-up, this one included, lie ahead (0: it may count)."""

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""

    def phase(self, name: Phase) -> None:
        """The loop begins something else."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch of tensors on the device is about to be trained on."""

    def loss(self, value: torch.Tensor) -> None:
        """The loss of the micro-batch just trained on: a scalar on the device, perhaps not yet computed."""

    def step_end(self) -> None:
        """An optimizer step was issued, not necessarily finished on the device."""

    def counted(self, begin: float, end: float) -> None:
        """The steps that count lay between these times of the monotonic clock; the last is over, the device idle."""

    def measurements(self) -> Mapping[str, Any]:
        """The values of this tracker's columns so far; what was not measured is left out."""
        return {}

    def series(self) -> Mapping[str, list[float]]:
        """Values per optimizer step, warm-up included, for the steps table."""
        return {}


def tell(trackers: Sequence[Tracker], moment: Moment, device: torch.device | None = None) -> None:
    """Wait for the device, where there is one yet, then tell every tracker of the moment."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    now = time.perf_counter()
    for tracker in trackers:
        tracker.at(moment, now)
