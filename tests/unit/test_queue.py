"""Which waiting trial takes a slot that is left: slots that are lost or join have the time to start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial

from orchestrator.running.cluster import queue
from orchestrator.running.cluster.queue import Queue


def test_the_first_to_wait_is_the_next_but_for_those_whose_slots_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now, starting = 0.0, 0
    monkeypatch.setattr(queue.time, "monotonic", lambda: now)
    waiting = Queue(lambda: starting)
    first, second, third = trials = [SimpleNamespace(status=Trial.PENDING) for _ in range(3)]
    for trial in trials:
        waiting.on_trial_add(None, trial)

    def chosen() -> Any:
        return waiting.choose_trial_to_run(None)

    assert chosen() is first
    starting = 2
    assert chosen() is third
    third.status = Trial.RUNNING
    assert chosen() is None
    now = 61.0
    assert chosen() is first, "somebody else has the GPU"
    first.status = Trial.RUNNING
    starting = 0
    assert chosen() is second
