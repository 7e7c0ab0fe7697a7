"""The loss of every step. At a fixed seed, equal training has equal losses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from jobs.record import Column
from jobs.trackers.sources.series import DeviceSeries
from jobs.trackers.tracker import Tracker

if TYPE_CHECKING:
    import torch


class Losses(Tracker):
    """A step's loss is the sum of the losses that its micro-batches backpropagated. If the sum
    depends on the accumulation, so do the gradients."""

    columns: ClassVar = (
        Column.number("loss_first", "Loss of the first step"),
        Column.number("loss_last", "Loss of the last counted step"),
    )

    def __init__(self) -> None:
        self._losses = DeviceSeries()
        self._step_ends: list[int] = []
        """Micro-batches that were trained on by the end of each step."""

    def loss(self, value: torch.Tensor) -> None:
        """Copy the micro-batch's loss to the host, without waiting for it."""
        self._losses.append(value)

    def step_end(self) -> None:
        self._step_ends.append(len(self._losses))

    def series(self) -> Mapping[str, list[float]]:
        """``loss``: the sum over each step's micro-batches. Waits for the device."""
        losses = self._losses.values()
        spans = itertools.pairwise([0, *self._step_ends])
        # Not the mean: the loop has divided each loss by the accumulation already.
        return {"loss": [math.fsum(losses[begin:end]) for begin, end in spans if begin < end]}

    def measurements(self) -> Mapping[str, Any]:
        """Empty before the first step has ended."""
        losses = self.series()["loss"]
        return {"loss_first": losses[0], "loss_last": losses[-1]} if losses else {}
