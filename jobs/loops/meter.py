"""The line between a training loop and the trackers: which step is warm-up, and when enough has been measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from jobs.trackers.base import Moment, Phase, Tracker, tell
from jobs.trackers.steps import Steps


class Listener(Protocol):
    """What a training loop talks to."""

    def train_begin(self) -> None:
        """Everything is prepared; the first batch is asked for next."""

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""

    def phase(self, name: Phase) -> None:
        """The loop begins something else."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch, on the device, is about to be trained on."""

    def wants(self, left: int) -> bool:
        """Whether that micro-batch, after which ``left`` of its step are to come, is to be trained on at all."""

    def loss(self, value: torch.Tensor) -> None:
        """The loss of the micro-batch just trained on, a scalar on the device."""

    def step_end(self) -> bool:
        """An optimizer step was issued. True: enough."""


class Meter:
    """Told by the loop of every wait, micro-batch and step; tells the trackers, and the loop when to stop.

    At most ``total_steps`` are trained, the first ``warmup_steps`` of them uncounted; fewer where the mean step is
    known to within ``relative_error`` before, or would not be after all of them.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        announce: Callable[[str], None],
        *,
        warmup_steps: int,
        total_steps: int,
        relative_error: float = 0.0,
        device: torch.device,
    ) -> None:
        self._trackers = trackers
        self._announce = announce
        self._warmup_steps = min(warmup_steps, total_steps - 1)
        self._total_steps = total_steps
        self._relative_error = relative_error
        self._device = device
        self._steps = next(tracker for tracker in trackers if isinstance(tracker, Steps))
        self._step = 0

    def train_begin(self) -> None:
        """Everything is prepared; the first batch is asked for next."""
        tell(self._trackers, Moment.TRAIN_BEGIN, self._device)
        self._announce("first_step")
        self._step_begin()

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""
        for tracker in self._trackers:
            tracker.data_wait(seconds)

    def phase(self, name: Phase) -> None:
        """The loop begins something else; what is timed here is whole steps."""
        for tracker in self._trackers:
            tracker.phase(name)

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch, on the device, is about to be trained on."""
        for tracker in self._trackers:
            tracker.micro_batch(inputs)

    def wants(self, left: int) -> bool:
        """Every one: what is measured is whole steps."""
        return True

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
        if self._step == self._warmup_steps:
            self._announce("steps")
        if self._step < self._total_steps and not self._steps.are_enough(
            self._warmup_steps, self._total_steps, self._relative_error
        ):
            self._step_begin()
            return False
        begin, end = self._steps.close(self._warmup_steps, self._relative_error)
        for tracker in self._trackers:
            tracker.counted(begin, end)
        return True

    def _step_begin(self) -> None:
        for tracker in self._trackers:
            tracker.step_begin(max(0, self._warmup_steps - self._step))
