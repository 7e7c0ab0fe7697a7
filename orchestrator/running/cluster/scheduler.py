"""Decides which waiting trial takes a slot that becomes free."""

import time
from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from orchestrator.running.cluster.searcher import StatelessPickle

SLOT_START_SECONDS = 60.0
"""How long a trial waits for a slot that is starting. Another user of Ray may hold its GPU."""
BETWEEN_TRIALS_SECONDS = 3.0
"""A slot that runs no trial for longer counts as lost. Tune does not report every loss."""


class SlotScheduler(StatelessPickle, FIFOScheduler):
    """First come, first served, except that a trial waits for the slot that starts for it.

    By default Tune gives its first waiting trial to the next free slot, and cancels the slot that
    is starting for this trial. So a new slot, or a replacement for a lost one, would never start
    while others are busy. ``slots`` returns how many slots there are now.
    """

    def __init__(
        self, slots: Callable[[], int], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._slots = slots
        self._clock = clock
        self._live: list[tuple[float, Any]] = []
        """(time when added, trial) of each unfinished trial, in the order of adding."""
        self._started_slots = 0
        self._started_slots_at = 0.0

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
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
        """How many slots have yet to start; 0 until the first one has started."""
        now = self._clock()
        # Between two trials of a slot, fewer trials run for a moment. No slot was lost then.
        if running >= self._started_slots or now > self._started_slots_at + BETWEEN_TRIALS_SECONDS:
            self._started_slots = running
            self._started_slots_at = now
        return max(0, self._slots() - self._started_slots) if self._started_slots else 0
