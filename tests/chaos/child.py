"""A trial's child in a chaos run: its fault in its phase, and a stand-in for training."""

import os
from pathlib import Path
from typing import Any

from jobs import errors
from jobs.flags import flag_columns
from jobs.isolation import preload
from jobs.node import environment, gpu_fitness
from jobs.record import Outcome, TrialRecord
from jobs.spec import TrialSpec
from jobs.trackers.device import Device
from jobs.trackers.tracker import Moment
from jobs.trial import run as trial
from tests.chaos.control import Control, Victim
from tests.support import faults

PHASES = ("requirements", "context", "data", "model", "trainer", "first_step", "warm_up", "steps")
PHASES += ("inspection",)
"""In the order in which a trial announces them."""


def install() -> None:
    """Let a slot's parent fork children that meet their faults and only pretend to train.

    Called before the parent's own code is imported.
    """
    trial.run = _pretend
    preload.preload = lambda: 0.0
    preload.unclean = lambda: ""


def _meet_fault(trial_id: str, phase: str) -> None:
    control = Control()
    fault = control.read(f"armed/{trial_id}")
    if fault is None or fault["phase"] != phase:
        return
    if fault["act"]:
        getattr(faults, fault["act"])(None, "", None)
        return
    parent = os.getppid()
    victim = Victim(
        trial_id=trial_id,
        node=os.environ["CHAOS_NODE"],
        child=os.getpid(),
        parent=parent,
        actor=faults.parent_of(parent),
    )
    control.stand_still(victim, always=fault["always"])


def _pretend(
    spec: TrialSpec, announce: trial.Announce, *, scratch: Path, context_bytes: int = 0
) -> TrialRecord:
    """Go through all phases of a trial, with figures that follow from its choices alone."""
    Control().started(spec.trial_id, os.environ["CHAOS_NODE"])
    outcome, reason, phase = Outcome.OK, "", ""
    figures: dict[str, Any] = {}
    with Device() as device:
        try:
            for phase in PHASES:
                announce(phase)
                _meet_fault(spec.trial_id, phase)
                if phase == "requirements":
                    device.start(context_bytes)
                elif phase == "trainer":
                    device.at(Moment.TRAIN_BEGIN, 0.0)
            figures = _figures(spec)
        except Exception as error:
            outcome, _, reason = errors.classify(error)
        measurements = {**device.measurements(), **figures}
    flags = gpu_fitness.sharing_flags(measurements, spec.settings)
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
