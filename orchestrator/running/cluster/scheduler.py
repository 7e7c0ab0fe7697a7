"""Which waiting trial takes a slot that another has left: the first, but for those whose own slots are starting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from orchestrator.running.cluster.not_kept import NotKept

_PATIENCE_SECONDS = 60.0
"""For a slot to start: its GPU may be somebody else's, whom Ray does not name."""
_BETWEEN_TRIALS_SECONDS = 3.0
"""A slot that has run no trial for longer is no longer there; Tune does not tell of all that it loses."""


class Queue(NotKept, FIFOScheduler):
    """First come, first served, on so many ``slots``; but a trial waits for the slot that is starting for it.

    Tune has its first waiting trial take every slot that is left, and drops the one being started for it. Beside
    several that are busy, one that was lost, or joins, would never be there.
    """

    def __init__(self, slots: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._slots = slots
        self._live: list[tuple[float, Any]] = []
        """Trials in their order, and since when."""
        self._up, self._up_at = 0, 0.0

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._live.append((time.monotonic(), trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        self._live = [(since, trial) for since, trial in self._live if not trial.is_finished()]
        waiting = [(since, trial) for since, trial in self._live if trial.status == Trial.PENDING]
        starting = self._starting(len(self._live) - len(waiting))
        overdue = time.monotonic() - _PATIENCE_SECONDS
        return next(
            (t for place, (since, t) in enumerate(waiting) if place >= starting or since < overdue),
            None,
        )

    def _starting(self, running: int) -> int:
        """Slots that are still to come, once there is any."""
        now = time.monotonic()
        if running >= self._up or now > self._up_at + _BETWEEN_TRIALS_SECONDS:
            self._up, self._up_at = running, now
        return max(0, self._slots() - self._up) if self._up else 0
