"""A step's time by what the loop did."""

from __future__ import annotations

import pytest

from jobs.anatomy.time.phases import phases
from tests.support.traces import BUSY_STEP, nanoseconds

TIMED = {"data": 10e-9, "forward": 30e-9, "backward": 30e-9, "optimizer": 10e-9, "upkeep": 5e-9}
"""Phase -> seconds: 85 ns, of which the kernels of ``BUSY_STEP`` fill 30."""


def test_phases_split_a_step_into_busy_and_idle_time() -> None:
    entries = list(phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=False, on_gpu=True))
    assert nanoseconds(entries, "phases") == {name: round(s * 1e9) for name, s in TIMED.items()}
    assert nanoseconds(entries, "step") == {
        "host-to-device": 2,
        "data wait": 8,
        "forward": 20,
        "backward": 4,
        "optimizer": 4,
        "launch-bound idle": 10 + 26 + 6,
        "logging and synchronisation": 5,
    }
    (ratio,) = (entry.value for entry in entries if entry.name == "backward / forward")
    assert ratio == pytest.approx(4 / 20)


def test_phases_with_updates_on_the_host_count_their_idle_time_as_work() -> None:
    entries = phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=True, on_gpu=True)
    assert nanoseconds(entries, "step")["optimizer"] == 10


def test_phases_on_a_cpu_have_no_idle_time() -> None:
    entries = phases(BUSY_STEP, TIMED, step_seconds=85e-9, host_updates=False, on_gpu=False)
    step = nanoseconds(entries, "step")
    assert "launch-bound idle" not in step
    assert sum(step.values()) == 85


@pytest.mark.parametrize(("counted", "idle"), [(85e-9, 42), (58e-9, 21), (30e-9, 0)])
def test_phases_scale_the_idle_time_to_the_counted_step(counted: float, idle: int) -> None:
    entries = phases(BUSY_STEP, TIMED, step_seconds=counted, host_updates=False, on_gpu=True)
    step = nanoseconds(entries, "step")
    assert step.get("launch-bound idle", 0) == pytest.approx(idle, abs=2)
    assert sum(step.values()) == pytest.approx(max(counted * 1e9, 2 + 20 + 4 + 4), abs=2)
    assert (step["forward"], step["backward"], step["host-to-device"]) == (20, 4, 2)
