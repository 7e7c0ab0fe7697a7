"""Launch-bound passes and updates, and the gaps between steps, on a SIMULATED GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from jobs.trackers import Moment
from jobs.trackers.launch_bound import LaunchBound
from jobs.trackers.sources import cuda_events
from tests.support.gpu import Device, simulated

FORWARD = 0.05
BACKWARD = 0.2
UPDATE = 0.02
COPY = 0.001
LAUNCH = 0.001
KERNELS = 10
STEPS = 6
LOSS: Any = None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return simulated(monkeypatch)


@dataclass(kw_only=True)
class Loop:
    """A training loop: seconds on the device, to launch, and of the host between two steps.

    It waits for the GPU after each micro-batch if it ``waits``, as a Trainer does that reads the
    loss. With ``deepspeed`` the engine updates in the backward pass, and the Trainer's update is
    empty.
    """

    device: Device
    forward: float = FORWARD
    launch: float = LAUNCH
    update: float = UPDATE
    update_launch: float = LAUNCH
    upkeep: float = 0.0
    data: float = 0.0
    inputs: float = 0.0
    accumulation: int = 1
    waits: bool = True
    deepspeed: bool = False
    clips: bool = True
    hiccup: float = 0.0
    """The last step waits and computes for so much longer."""
    tracker: LaunchBound = field(default_factory=LaunchBound)

    def run(self, steps: int = STEPS) -> Mapping[str, Any]:
        """The tracker's figures over all steps but the first two."""
        device = self.device
        self.tracker.at(Moment.TRAIN_BEGIN, device.host.now)
        begin = device.host.now
        for step in range(steps):
            if step == 2:
                begin = device.host.now
            if step == steps - 1:
                self.data += self.hiccup
                self.forward += self.hiccup
            self._step()
        device.event().synchronize()
        self.tracker.counted(begin, device.host.now)
        return self.tracker.measurements()

    def _step(self) -> None:
        self.tracker.phase("data")
        self.device.host.now += self.data
        for _ in range(self.accumulation):
            self.device.host.now += self.inputs
            self.device.work(COPY)
            self.micro_batch()
            if self.waits:
                self.device.event().synchronize()
        update = (0.0, 0.0) if self.deepspeed else (self.update / 2, self.update_launch / 2)
        for phase in ("clipping", "upkeep", "optimizer") if self.clips else ("upkeep", "optimizer"):
            self.tracker.phase(phase)
            if phase != "upkeep":
                self._launch(*update)
        self.tracker.phase("upkeep")
        self.device.host.now += self.upkeep
        self.tracker.step_end()

    def micro_batch(self) -> None:
        self.tracker.phase("forward")
        self._launch(self.forward, self.launch)
        self.tracker.phase("backward")
        self._launch(BACKWARD, LAUNCH)
        if self.deepspeed:
            self.tracker.phase("optimizer")
            self._launch(self.update, self.update_launch)
        self.tracker.phase("upkeep")
        self.tracker.loss(LOSS)

    def _launch(self, seconds: float, launch: float) -> None:
        """Kernels that together take so long on the device and to launch."""
        for _ in range(KERNELS):
            self.device.host.now += launch / KERNELS
            self.device.work(seconds / KERNELS)


def forward_share(device: Device, steps: int = STEPS, **loop: Any) -> float:
    """The share of forward passes, where no update is launch-bound."""
    values = Loop(device=device, **loop).run(steps)
    assert values["launch_bound_update_share"] == 0.0
    return float(values["launch_bound_forward_share"])


@pytest.mark.parametrize("accumulation", [1, 3])
def test_launch_bound_forward_launched_slower_than_run(device, accumulation):
    # A step's first pass begins while the optimizer runs: the GPU was idle at an earlier point.
    share = forward_share(device, 30, forward=0.001, launch=0.1, accumulation=accumulation)
    passes = accumulation * (0.1 + BACKWARD)
    assert share == pytest.approx(accumulation * 0.1 / (passes + UPDATE), rel=0.2)


@pytest.mark.parametrize("forward", [0.1, 0.04])
def test_launch_bound_forward_launched_faster_is_zero(device, forward):
    assert forward_share(device, forward=forward, launch=0.03) == 0.0
    # The engine's update waits for the backward pass.
    engine = {"deepspeed": True, "update": 0.001, "update_launch": 0.03}
    assert forward_share(device, forward=forward, launch=0.03, **engine) == 0.0


@pytest.mark.parametrize(("steps", "forward", "is_small"), [(20, 0.05, True), (1, 0.001, False)])
def test_launch_bound_loop_ahead_idles_once(device, steps, forward, is_small):
    share = forward_share(device, steps, forward=forward, launch=0.1, waits=False)
    assert (share < 0.1) is is_small


class TwoStacks(Loop):
    """An encoder that keeps the GPU busy, a decoder that does not, and a long loss behind it."""

    def micro_batch(self) -> None:
        tracker = self.tracker
        for phase in ("forward", "backward"):
            tracker.phase(phase)
            parts = [(0.03, 0.01), (0.001, 0.1), (0.02, LAUNCH)]
            for number, part in enumerate(parts if phase == "forward" else parts[::-1]):
                if number:
                    tracker.between_stacks()
                self._launch(*part)
        tracker.phase("upkeep")
        tracker.between_stacks()  # as of an evaluation: nothing is divided
        tracker.loss(LOSS)


def test_launch_bound_stack_within_a_pass_that_ends_with_long_kernels(device):
    loop = TwoStacks(device=device)
    values = loop.run()
    # While the decoder is launched, the GPU still computes what is before it: update and encoder,
    # or the loss in both passes.
    idle = {"forward": 0.01 + 0.1 - UPDATE - 0.03, "backward": 2 * LAUNCH + 0.1 - 2 * 0.02}
    forward, backward = (0.03 + 0.02 + own for own in idle.values())
    step = forward + backward + UPDATE
    assert values["forward_seconds_median"] == pytest.approx(forward, rel=0.05)
    assert values["backward_seconds_median"] == pytest.approx(backward, rel=0.05)
    for part, own in idle.items():
        assert values[f"launch_bound_{part}_share"] == pytest.approx(own / step, rel=0.05)
    assert values["launch_bound_update_share"] == 0.0
    # Undivided passes would not show it.
    assert Loop(device=device, forward=forward).run()["launch_bound_forward_share"] == 0.0


@pytest.mark.parametrize("forward", [0.001, 0.1])
def test_launch_bound_update_of_many_small_kernels(device, forward):
    loop = Loop(device=device, forward=forward, launch=0.03, update=0.001, update_launch=0.3)
    values = loop.run()
    step = max(forward, 0.03) + BACKWARD + 0.3
    assert values["launch_bound_update_share"] == pytest.approx(0.3 / step, rel=0.1)
    assert (values["launch_bound_forward_share"] > 0.0) is (forward < 0.03)


class SlowClipping(Loop):
    def _launch(self, seconds: float, launch: float) -> None:
        super()._launch(seconds, 0.1 if self.tracker._phase == "clipping" else launch)


def test_launch_bound_clipping_before_a_long_optimizer(device):
    values = SlowClipping(device=device, update=0.002).run()
    update = 0.1 + 0.001
    step = FORWARD + BACKWARD + update
    assert values["launch_bound_update_share"] == pytest.approx(0.1 / step, rel=0.05)
    assert values["update_seconds_median"] == pytest.approx(update, rel=0.05)


@pytest.mark.parametrize(("clips", "update"), [(True, UPDATE), (False, UPDATE / 2)])
def test_launch_bound_has_the_seconds_of_a_steps_passes_and_update(device, clips, update):
    values = Loop(device=device, forward=0.1, accumulation=3, clips=clips).run()
    assert values["forward_seconds_median"] == pytest.approx(3 * 0.1, rel=0.05)
    assert values["update_seconds_median"] == pytest.approx(update, rel=0.05)


def test_launch_bound_long_after_the_last_idle_point_is_unknown(device):
    loop = Loop(device=device, forward=0.001, launch=0.1)
    loop.tracker.at(Moment.TRAIN_BEGIN, device.host.now)
    begin = device.host.now
    device.host.now += 6.0
    loop.micro_batch()
    device.event().synchronize()
    loop.tracker.counted(begin, device.host.now)
    values = loop.tracker.measurements()
    assert values["launch_bound_forward_share"] == values["launch_bound_update_share"] == 0.0


def test_gap_shows_what_a_callback_spends_between_steps(device):
    quick = Loop(device=device, hiccup=9.0).run()
    slow = Loop(device=device, upkeep=UPDATE + 0.5).run()
    added = slow["step_gap_seconds_median"] - quick["step_gap_seconds_median"]
    assert added == pytest.approx(0.5, rel=0.01)
    step = FORWARD + BACKWARD + UPDATE + COPY
    assert slow["step_gap_share"] == pytest.approx(0.5 / (step + 0.5), rel=0.05)
    # It is in no other part of the step.
    for column in ("forward_seconds_median", "update_seconds_median"):
        assert slow[column] == pytest.approx(quick[column], rel=0.01)
    assert slow["launch_bound_forward_share"] == slow["launch_bound_update_share"] == 0.0


@pytest.mark.parametrize(
    ("loop", "gap"),
    [
        ({"upkeep": 0.3, "data": 0.4, "inputs": 0.2}, 0.9 - UPDATE),
        # The update runs on while the host does its upkeep: only the copy is left.
        ({"upkeep": UPDATE / 2}, COPY),
        ({"upkeep": 0.05, "waits": False}, COPY),
        # An accumulating step has one gap. DeepSpeed's begins behind the step's last update.
        ({"upkeep": 1.0, "accumulation": 4}, 1.0 - UPDATE),
        ({"upkeep": 1.0, "deepspeed": True, "accumulation": 2}, 1.0),
    ],
    ids=["data", "covered", "ahead", "accumulating", "deepspeed"],
)
def test_gap_on_the_gpu(loop, gap, device):
    values = Loop(device=device, **loop).run()
    assert values["step_gap_seconds_median"] == pytest.approx(gap, abs=2 * LAUNCH, rel=0.02)


@pytest.mark.parametrize("steps", [1, 2])
def test_gap_needs_a_counted_step_after_another(steps, device):
    assert ("step_gap_share" in Loop(device=device).run(steps)) is (steps == 2)


def test_gap_records_no_events_of_its_own(device, monkeypatch):
    """An event more a phase would be paid in every step of every trial."""
    recorded = []
    record = cuda_events.recorded
    monkeypatch.setattr(cuda_events, "recorded", lambda: recorded.append(1) or record())
    Loop(device=device, upkeep=0.1).run()
    # The beginning; then six points and two events behind the loss and the update, each step.
    assert len(recorded) == 1 + 8 * STEPS
