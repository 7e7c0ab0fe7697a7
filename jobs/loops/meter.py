"""Connects a training loop to the trackers, and decides when enough has been measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from jobs.ragged_steps import RaggedSteps
from jobs.trackers.ragged_data import RaggedData
from jobs.trackers.sources.micro_batches import CountSamples
from jobs.trackers.step_times import Steps
from jobs.trackers.tracker import Moment, Phase, Tracker, notify


class Listener:
    """What a training loop reports to. This one ignores everything, and never ends a training."""

    def train_begin(self) -> None:
        """Everything is prepared; the loop fetches its first batch next."""

    def data_wait(self, seconds: float) -> None:
        """The loop waited this long for the micro-batches of its next step."""

    def phase(self, name: Phase) -> None:
        """The loop enters a phase."""

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch, whose tensors are on the device, is about to be trained on."""

    def wants(self, left: int) -> bool:
        """Whether to train on that micro-batch; ``left`` more belong to the same step."""
        return True

    def loss(self, value: torch.Tensor) -> None:
        """The loss of the last micro-batch: a device scalar."""

    def step_end(self) -> bool:
        """The host issued an optimizer step. True: stop training."""
        return False


class Meter(Listener):
    """A ``Listener`` that reports to the trackers, and ends the training.

    Of at most ``total_steps`` the first ``warmup_steps`` do not count, but at least one counts. It
    stops earlier if the mean step time is known to within ``relative_error``, or would not be even
    after all steps. ``count_samples`` returns the number of samples of a batch.
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
        count_samples: CountSamples | None = None,
        ragged: RaggedSteps | None = None,
    ) -> None:
        self._trackers = trackers
        self._announce = announce
        self._announced = ""
        self._warmup_steps = min(warmup_steps, total_steps - 1)
        self._total_steps = total_steps
        self._relative_error = relative_error
        self._device = device
        self._steps = Steps.among(trackers)
        self._steps.count_samples = count_samples
        self._steps.ragged = ragged
        if ragged is not None:
            RaggedData.among(trackers).steps = ragged
        self._finished = 0

    def train_begin(self) -> None:
        notify(self._trackers, Moment.TRAIN_BEGIN, self._device)
        self._enter("first_step")
        self._begin_step()

    def data_wait(self, seconds: float) -> None:
        for tracker in self._trackers:
            tracker.data_wait(seconds)

    def phase(self, name: Phase) -> None:
        # Of several ranks, the one that does not go on is then the one that comes less far.
        if self._announced:
            self._enter(self._announced)
        for tracker in self._trackers:
            tracker.phase(name)

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        for tracker in self._trackers:
            tracker.micro_batch(inputs)

    def loss(self, value: torch.Tensor) -> None:
        for tracker in self._trackers:
            tracker.loss(value)

    def step_end(self) -> bool:
        self._finished += 1
        for tracker in self._trackers:
            tracker.step_end()
        if self._finished == 1:
            self._enter("warm_up")
        # Without warm-up the first step counts, but it is still a phase of its own.
        if self._finished == max(1, self._warmup_steps):
            self._enter("steps")
        if self._finished < self._total_steps and not self._steps.are_enough(
            self._warmup_steps, self._total_steps, self._relative_error
        ):
            self._begin_step()
            return False
        # The trackers learn only now which steps count: steadiness is judged over all of them.
        begin, end = self._steps.close(self._warmup_steps, self._relative_error)
        for tracker in self._trackers:
            tracker.counted(begin, end)
        return True

    def _enter(self, phase: str) -> None:
        self._announced = phase
        self._announce(phase)

    def _begin_step(self) -> None:
        warmup_left = max(0, self._warmup_steps - self._finished)
        for tracker in self._trackers:
            tracker.step_begin(warmup_left)


class WorstStep(Listener):
    """A ``Listener`` for a single step, of which only the memory is measured."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._tracker = RaggedData.among(trackers)

    def train_begin(self) -> None:
        self._tracker.worst_step_begin()

    def step_end(self) -> bool:
        self._tracker.worst_step_end()
        return True
