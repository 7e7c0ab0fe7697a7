"""The loss of every step. At a fixed seed, equal training has equal losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.base import Tracker
from jobs.trackers.sources.device_series import DeviceSeries

if TYPE_CHECKING:
    import torch


class Losses(Tracker):
    """A step's loss is the sum of the losses that its micro-batches backpropagated.

    A loop that scales for accumulation divides each micro-batch's loss, so that the sum does not
    depend on the accumulation. If the sum depends on it, so do the gradients.
    """

    columns: ClassVar = (
        Column("loss_first", "float64", "Loss of the first step"),
        Column("loss_last", "float64", "Loss of the last counted step"),
    )

    def __init__(self) -> None:
        self._losses = DeviceSeries()
        self._step_ends: list[int] = []
        """Micro-batches that were trained on by the end of each step."""

    def loss(self, value: torch.Tensor) -> None:
        self._losses.append(value)

    def step_end(self) -> None:
        self._step_ends.append(len(self._losses))

    def series(self) -> Mapping[str, list[float]]:
        losses = self._losses.values()
        bounds = itertools.pairwise([0, *self._step_ends])
        steps = [losses[begin:end] for begin, end in bounds]
        return {"loss": [math.fsum(step) for step in steps if step]}

    def measurements(self) -> Mapping[str, Any]:
        losses = self.series()["loss"]
        if not losses:
            return {}
        return {"loss_first": losses[0], "loss_last": losses[-1]}
