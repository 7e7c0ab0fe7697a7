"""Which waiting trial takes a slot that another has left: the first, but for those whose own slots are starting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler

from orchestrator.running.cluster.roster import NotKept

_PATIENCE_SECONDS = 60.0
"""For a slot to start: it may be somebody else's, whom Ray does not name."""


class Queue(NotKept, FIFOScheduler):
    """First come, first served; ``starting`` of the first are left alone.

    Tune has its first waiting trial take every slot that is left, and drops the one being started for it. Beside
    several that are busy, one that was lost, or joins, would never be there.
    """

    def __init__(self, starting: Callable[[], int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._starting = starting
        self._waiting: list[tuple[float, Any]] = []

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._waiting.append((time.monotonic(), trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        self._waiting = [(since, trial) for since, trial in self._waiting if trial.status == Trial.PENDING]
        ahead, until = self._starting(), time.monotonic() - _PATIENCE_SECONDS
        free = (trial for place, (since, trial) in enumerate(self._waiting) if place >= ahead or since < until)
        return next(free, None)
