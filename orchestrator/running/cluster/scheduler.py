"""Which waiting trial takes a slot that another trial has left."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from orchestrator.running.cluster.searcher import Unpickled

SLOT_START_SECONDS = 60.0
"""How long a trial waits for a slot that is starting. Another user of Ray may hold its GPU."""
BETWEEN_TRIALS_SECONDS = 3.0
"""A slot that has run no trial for longer is lost. Tune does not report each loss."""


class SlotScheduler(Unpickled, FIFOScheduler):
    """First come, first served; but a trial waits for the slot that is starting for it.

    Left to itself Tune gives its first waiting trial to the next slot that is left, and drops the
    slot that it is starting for that trial. Beside busy slots, a slot that was lost and one that
    joins would never start. ``slots`` says how many there are by now.
    """

    def __init__(
        self, slots: Callable[[], int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._slots = slots
        self._clock = clock
        self._live: list[tuple[float, Any]] = []
        """When each unfinished trial was added, and the trial, in their order."""
        self._started_slots = 0
        self._started_slots_at = 0.0

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Put the trial at the end of the queue."""
        self._live.append((self._clock(), trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """The trial for a slot that is free; None if all wait for a slot that is starting."""
        self._live = [entry for entry in self._live if not entry[1].is_finished()]
        waiting = [entry for entry in self._live if entry[1].status == Trial.PENDING]
        starting = self._starting_slots(running=len(self._live) - len(waiting))
        # The first trials wait for the slots that start, unless they have waited for too long.
        overdue_since = self._clock() - SLOT_START_SECONDS
        for position, (added_at, trial) in enumerate(waiting):
            if position >= starting or added_at < overdue_since:
                return trial
        return None

    def _starting_slots(self, *, running: int) -> int:
        """Slots that are still to start, once at least one has."""
        now = self._clock()
        # Between two trials of a slot Tune counts one fewer for a moment; that is no lost slot.
        if running >= self._started_slots or now > self._started_slots_at + BETWEEN_TRIALS_SECONDS:
            self._started_slots = running
            self._started_slots_at = now
        if not self._started_slots:
            return 0
        return max(0, self._slots() - self._started_slots)
