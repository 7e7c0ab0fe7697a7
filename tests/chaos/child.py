"""A trial's child in a chaos run: its fault in its phase, and a stand-in for training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs import errors
from jobs.flags import flag_columns
from jobs.isolation import preload
from jobs.node import environment, gpu_sharing
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.trackers.device import Device
from jobs.trackers.tracker import Moment
from jobs.trial import run as trial
from tests.chaos.control import Announcement, Control
from tests.support import faults

PHASES: Sequence[str] = (
    "requirements",
    "context",
    "data",
    "model",
    "trainer",
    "first_step",
    "warm_up",
    "steps",
    "inspection",
)
"""In the order in which a trial announces them."""


def install(*, training: bool) -> None:
    """Let a slot's parent fork children that meet their faults, and train or only pretend to.

    Called before the parent's own code is imported.
    """
    run = trial.run if training else _pretend

    def run_with_fault(
        spec: TrialSpec,
        announce: trial.Announce,
        *,
        scratch: Path,
        context_bytes: int = 0,
    ) -> TrialRecord:
        control, node = Control.here(), os.environ["CHAOS_NODE"]
        control.started(spec.trial_id, node)

        def enter(phase: str) -> None:
            announce(phase)
            _meet_fault(control, spec.trial_id, node, phase)

        return run(spec, enter, scratch=scratch, context_bytes=context_bytes)

    trial.run = run_with_fault
    if not training:
        preload.preload = lambda: 0.0
        preload.unclean = lambda: ""


def _meet_fault(control: Control, trial_id: str, node: str, phase: str) -> None:
    arm = control.armed(trial_id)
    if arm is None or arm.phase != phase:
        return
    if arm.act != "announce":
        getattr(faults, arm.act)(None, "", None)
        return
    parent = os.getppid()
    actor = faults.parent_of(parent)
    announcement = Announcement(
        trial_id=trial_id, node=node, child=os.getpid(), parent=parent, actor=actor
    )
    control.announce(announcement, always=arm.always)


def _pretend(
    spec: TrialSpec, announce: trial.Announce, *, scratch: Path, context_bytes: int
) -> TrialRecord:
    """Go through all phases of a trial, with figures that follow from its choices alone."""
    outcome, reason, phase = Outcome.OK, "", ""
    figures: dict[str, Any] = {}
    with Device() as device:
        try:
            for phase in PHASES:
                announce(phase)
                if phase == "requirements":
                    device.start(context_bytes)
                elif phase == "trainer":
                    device.at(Moment.TRAIN_BEGIN, 0.0)
            figures = _figures(spec)
        except Exception as error:
            outcome, _, reason = errors.classify(error)
        measurements = {**device.measurements(), **figures}
    flags = gpu_sharing.flags(measurements, spec.settings)
    return TrialRecord(
        spec=spec,
        outcome=outcome,
        reason=reason,
        phase="" if outcome is Outcome.OK else phase,
        measurements={**measurements, **flag_columns(flags)},
        environment=environment.describe(),
    )


def _figures(spec: TrialSpec) -> dict[str, Any]:
    size = 2**30 + 2**24 * spec.micro_batch + int(spec.trial_id, 16) % 2**24
    speed = 100.0 * spec.micro_batch / (spec.micro_batch + 4)
    return {
        "peak_allocated_bytes": size,
        "device_peak_bytes": size + 2**29,
        "samples_per_second": speed,
        "samples_per_second_ci95": 0.001,
        "step_seconds_median": spec.effective_batch / speed,
    }
