"""Which waiting trial takes a slot that is left: slots that are lost or join have the time to start."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.experiment import Trial

from orchestrator.running.cluster import scheduler
from orchestrator.running.cluster.scheduler import Queue


class Tune:
    """Trials on two slots, an hour after the first have begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slots = 3600.0, 2
        monkeypatch.setattr(scheduler.time, "monotonic", lambda: self.now)
        self._queue = Queue(lambda: self.slots)
        self.running = [self.add(Trial.RUNNING), self.add(Trial.RUNNING)]

    def add(self, status: str = Trial.PENDING) -> Any:
        """One more."""
        trial: Any = Trial("slot", stub=True)  # type: ignore[no-untyped-call]
        trial.set_status(status)
        self._queue.on_trial_add(None, trial)
        return trial

    def chosen(self, now: float | None = None) -> Any:
        """Which is to take a slot if one is free."""
        self.now = self.now if now is None else now
        return self._queue.choose_trial_to_run(None)


def test_the_first_to_wait_takes_the_slot_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    tune = Tune(monkeypatch)
    first, second = tune.add(), tune.add()
    assert tune.chosen() is first
    tune.running[0].set_status(Trial.TERMINATED)
    assert tune.chosen() is first
    first.set_status(Trial.RUNNING)
    assert tune.chosen() is second


@pytest.mark.parametrize("lost", [True, False])
def test_a_trial_whose_slot_is_starting_waits_for_it(
    lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune = Tune(monkeypatch)
    assert tune.chosen(3600.0) is None
    if lost:
        tune.running[0].set_status(Trial.ERROR)
    else:
        tune.slots = 3
    first, second = tune.add(), tune.add()
    assert tune.chosen(3604.0) is second
    assert tune.chosen(3661.0) is first, "somebody else has the GPU"


def test_where_no_slot_has_started_the_first_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tune = Tune(monkeypatch)
    for trial in tune.running:
        trial.set_status(Trial.ERROR)
    assert tune.add() is tune.chosen()
