"""Losses: what each step trained to at the fixed seed, so that unlike training is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Tracker
from jobs.trackers.sources.device_series import DeviceSeries

if TYPE_CHECKING:
    import torch


class Losses(Tracker):
    """A step's loss is the sum over its micro-batches of what was backpropagated.

    A loop that scales for accumulation divides each by its share, so the sum does not depend on the accumulation;
    where it does, the gradients do too.
    """

    columns: ClassVar = (
        Column("loss_first", "float64", "loss of the first step"),
        Column("loss_last", "float64", "loss of the last counted step"),
    )

    def __init__(self) -> None:
        self._losses = DeviceSeries()
        self._ends: list[int] = []

    def loss(self, value: torch.Tensor) -> None:
        self._losses.append(value)

    def step_end(self) -> None:
        self._ends.append(len(self._losses))

    def series(self) -> Mapping[str, list[float]]:
        micro = self._losses.values()
        steps = [micro[begin:end] for begin, end in zip([0, *self._ends], self._ends, strict=False)]
        return {"loss": [math.fsum(step) for step in steps if step]}

    def measurements(self) -> Mapping[str, Any]:
        losses = self.series()["loss"]
        return {"loss_first": losses[0], "loss_last": losses[-1]} if losses else {}
