"""The line between a training loop and the trackers: which step is warm-up, which counts, when to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jobs.trackers.base import Moment, Tracker, tell


class Meter:
    """Told by the loop of every wait, micro-batch and step; tells the trackers, and the loop when to stop."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        announce: Callable[[str], None],
        *,
        warmup_steps: int,
        total_steps: int,
        enough: Callable[[], bool] = lambda: False,
        device: torch.device,
    ) -> None:
        self.total_steps = total_steps
        self.warmup_steps = min(warmup_steps, total_steps - 1)
        self._enough = enough
        self._trackers = trackers
        self._announce = announce
        self._device = device
        self._step = 0

    def at(self, moment: Moment) -> None:
        """Wait for the device, then tell every tracker of the moment."""
        tell(self._trackers, moment, self._device)

    def train_begin(self) -> None:
        """Everything is prepared; the first batch is asked for next."""
        self.at(Moment.TRAIN_BEGIN)
        self._announce("first_step")
        if self.warmup_steps == 0:
            self.at(Moment.COUNTED_BEGIN)

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""
        for tracker in self._trackers:
            tracker.data_wait(seconds)

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch, on the device, is about to be trained on."""
        for tracker in self._trackers:
            tracker.micro_batch(inputs)

    def loss(self, value: torch.Tensor) -> None:
        """The loss of the micro-batch just trained on, a scalar on the device."""
        for tracker in self._trackers:
            tracker.loss(value)

    def step_end(self) -> bool:
        """An optimizer step was issued. True when the measurement is complete."""
        self._step += 1
        for tracker in self._trackers:
            tracker.step_end()
        if self._step == 1:
            self._announce("warm_up")
        if self._step == self.warmup_steps:
            self.at(Moment.COUNTED_BEGIN)
            self._announce("steps")
        elif self._step == self.total_steps or (self._step > self.warmup_steps and self._enough()):
            self.at(Moment.COUNTED_END)
            return True
        return False
