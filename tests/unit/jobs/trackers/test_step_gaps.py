"""The gap between two steps, on a SIMULATED GPU: how long it is, and what the host did in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jobs.trackers import Moment
from jobs.trackers.launch_bound import LaunchBound
from tests.support.gpu import Device, simulated

FORWARD = 0.05
BACKWARD = 0.1
UPDATE = 0.02
COPY = 0.001
STEP = FORWARD + BACKWARD + UPDATE + COPY
LAUNCH = 0.001
STEPS = 6
LOSS: Any = None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


class Loop:
    """A training loop whose host spends the given seconds between two steps.

    It waits for the GPU before each update if it ``waits``, as a Trainer does that reads the loss.
    With ``deepspeed`` the engine updates in the backward pass, and the Trainer's update is empty.
    """

    def __init__(
        self,
        device: Device,
        *,
        upkeep: float = 0.0,
        data: float = 0.0,
        inputs: float = 0.0,
        accumulation: int = 1,
        waits: bool = True,
        deepspeed: bool = False,
    ) -> None:
        self.device = device
        self.upkeep = upkeep
        self.data = data
        self.inputs = inputs
        self.accumulation = accumulation
        self.waits = waits
        self.deepspeed = deepspeed
        self.tracker = LaunchBound()

    def run(self, steps: int = STEPS) -> Mapping[str, Any]:
        """The tracker's figures over all steps but the first."""
        device = self.device
        self.tracker.at(Moment.TRAIN_BEGIN, device.host.now)
        begin = device.host.now
        for step in range(steps):
            if step == 1:
                begin = device.host.now
            self._step()
        device.event().synchronize()
        self.tracker.counted(begin, device.host.now)
        return self.tracker.measurements()

    def _step(self) -> None:
        device = self.device
        self.tracker.phase("data")
        device.host.now += self.data
        for _ in range(self.accumulation):
            device.host.now += self.inputs
            device.work(COPY)
            self._micro_batch()
        if self.waits:
            device.event().synchronize()
        self.tracker.phase("optimizer")
        if not self.deepspeed:
            self._launch(UPDATE)
        self.tracker.phase("upkeep")
        device.host.now += self.upkeep
        self.tracker.step_end()

    def _micro_batch(self) -> None:
        self.tracker.phase("forward")
        self._launch(FORWARD)
        self.tracker.phase("backward")
        self._launch(BACKWARD)
        if self.deepspeed:
            self.tracker.phase("optimizer")
            self._launch(UPDATE)
        self.tracker.phase("upkeep")
        self.tracker.loss(LOSS)

    def _launch(self, seconds: float) -> None:
        self.device.host.now += LAUNCH
        self.device.work(seconds)


def test_gap_shows_what_a_callback_spends_between_steps(device: Device) -> None:
    quick = Loop(device).run()
    slow = Loop(device, upkeep=UPDATE + 0.5).run()
    added = slow["step_gap_seconds_median"] - quick["step_gap_seconds_median"]
    assert added == pytest.approx(0.5, rel=0.01)
    assert slow["step_gap_upkeep_seconds_median"] == pytest.approx(UPDATE + 0.5, rel=0.01)
    assert slow["step_gap_share"] == pytest.approx(0.5 / (STEP + 0.5), rel=0.05)
    # It is in no other part of the step.
    for column in ("forward_seconds_median", "update_seconds_median"):
        assert slow[column] == pytest.approx(quick[column], rel=0.01)
    assert slow["launch_bound_forward_share"] == slow["launch_bound_update_share"] == 0.0


@pytest.mark.parametrize(
    ("loop", "gap", "host", "upkeep"),
    [
        ({"upkeep": 0.3, "data": 0.4, "inputs": 0.2}, 0.9 - UPDATE, 0.9, 0.3),
        # The update runs on while the host does its upkeep: only the copy is left.
        ({"upkeep": UPDATE / 2}, COPY, UPDATE / 2, UPDATE / 2),
        ({"upkeep": 0.05, "waits": False}, COPY, 0.05, 0.05),
        # An accumulating step has one gap. DeepSpeed's begins behind the step's last update.
        ({"upkeep": 1.0, "accumulation": 4}, 1.0 - UPDATE, 1.0, 1.0),
        ({"upkeep": 1.0, "deepspeed": True, "accumulation": 2}, 1.0, 1.0, 1.0),
    ],
    ids=["data", "covered", "ahead", "accumulating", "deepspeed"],
)
def test_gap_on_the_gpu_and_on_the_host(
    loop: dict[str, Any], gap: float, host: float, upkeep: float, device: Device
) -> None:
    values = Loop(device, **loop).run()
    assert values["step_gap_seconds_median"] == pytest.approx(gap, abs=2 * LAUNCH, rel=0.02)
    assert values["step_gap_host_seconds_median"] == pytest.approx(host, abs=LAUNCH, rel=0.05)
    assert values["step_gap_upkeep_seconds_median"] == pytest.approx(upkeep, abs=LAUNCH, rel=0.05)


@pytest.mark.parametrize("steps", [1, 2])
def test_gap_needs_a_counted_step_after_another(steps: int, device: Device) -> None:
    values = Loop(device).run(steps)
    assert ("step_gap_share" in values) is (steps == 2)


def test_gap_records_no_events_of_its_own(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event more a phase would be paid in every step of every trial."""
    from jobs.trackers.sources import cuda_events

    recorded = 0
    record = cuda_events.recorded

    def counting() -> Any:
        nonlocal recorded
        recorded += 1
        return record()

    monkeypatch.setattr(cuda_events, "recorded", counting)
    Loop(device, upkeep=0.1).run()
    # The beginning; then four points and two events behind the loss and the update, each step.
    assert recorded == 1 + 6 * STEPS
