"""Which waiting trial takes a slot that is left: slots that are lost or join have time to start.
And signals that interrupt a sweep.
"""

import os
import signal
from typing import Any
from unittest.mock import Mock

import pytest
from ray.tune.experiment import Trial

from orchestrator.running.cluster import ray_tune
from orchestrator.running.cluster.ray_tune import SlotScheduler


class Tune:
    """Trials on two slots, an hour after the first have begun."""

    def __init__(self) -> None:
        self.now = 3600.0
        self.slots = 2
        self._scheduler = SlotScheduler(lambda: self.slots, clock=lambda: self.now)
        self.running = [self.add(Trial.RUNNING), self.add(Trial.RUNNING)]

    def add(self, status: str = Trial.PENDING) -> Any:
        trial: Any = Trial("slot", stub=True)
        trial.set_status(status)
        self._scheduler.on_trial_add(None, trial)
        return trial

    def chosen(self, now: float | None = None) -> Any:
        self.now = self.now if now is None else now
        return self._scheduler.choose_trial_to_run(None)


def test_first_trial_to_wait_takes_the_slot_that_is_left():
    tune = Tune()
    first, second = tune.add(), tune.add()
    assert tune.chosen() is first
    tune.running[0].set_status(Trial.TERMINATED)
    assert tune.chosen() is first
    first.set_status(Trial.RUNNING)
    assert tune.chosen() is second


@pytest.mark.parametrize("lost", [True, False], ids=["lost slot", "slot that joins"])
def test_trial_waits_for_its_slot_to_start(lost):
    tune = Tune()
    assert tune.chosen(3600.0) is None
    if lost:
        tune.running[0].set_status(Trial.ERROR)
    else:
        tune.slots = 3
    first, second = tune.add(), tune.add()
    assert tune.chosen(3604.0) is second
    assert tune.chosen(3661.0) is first, "another user of Ray has the GPU"


def test_first_trial_is_first_before_any_slot_has_started():
    tune = Tune()
    for trial in tune.running:
        trial.set_status(Trial.ERROR)
    assert tune.add() is tune.chosen()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_interrupts_the_session(number, monkeypatch):
    # A command under nohup ignores SIGHUP on purpose, and so would its tests.
    monkeypatch.setattr("signal.getsignal", lambda number: signal.SIG_DFL)
    monkeypatch.setattr(ray_tune, "_leave_terminal", lambda: None)
    session = Mock()
    with ray_tune._interruptible(session):
        os.kill(os.getpid(), number)
    session.interrupt.assert_called_once_with()
