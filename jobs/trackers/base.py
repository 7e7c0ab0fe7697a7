"""What a tracker is: a context manager around the training with declared columns, told of each moment that passes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from jobs.record import Column


class Moment(enum.StrEnum):
    """The moments of a trial, in order. Between ``COUNTED_BEGIN`` and ``COUNTED_END`` lie the steps that count.

    ::

        START─►CONTEXT─►MODEL─►TRAIN_BEGIN─►(warm-up)─►COUNTED_BEGIN─►(steps)─►COUNTED_END─►TRAIN_END
              CUDA     weights on                     synchronised            synchronised
              context  the device
    """

    START = "start"
    CONTEXT = "context"
    MODEL = "model"
    TRAIN_BEGIN = "train_begin"
    COUNTED_BEGIN = "counted_begin"
    COUNTED_END = "counted_end"
    TRAIN_END = "train_end"


class Tracker:
    """One instrument. Subclasses declare ``columns`` and override what they listen to; every hook is optional."""

    columns: ClassVar[tuple[Column, ...]] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def at(self, moment: Moment) -> None:
        """A moment of the trial has come; the device is idle at every one of them."""

    def micro_batch(self, samples: int, tokens: int, real_tokens: int | None) -> None:
        """A micro-batch is about to be trained on. Tokens are 0 for inputs that have none."""

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for its next micro-batches."""

    def step_end(self) -> None:
        """An optimizer step was issued (not necessarily finished on the device)."""

    def measurements(self) -> Mapping[str, Any]:
        """The values of this tracker's columns so far; a column that was not measured may be left out."""
        return {}
