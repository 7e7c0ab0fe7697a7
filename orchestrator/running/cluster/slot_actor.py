"""The actor under Tune that keeps one GPU's slot, and the record of a trial whose actor was lost."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray import tune

from jobs import environment, nvml
from jobs.record import Outcome, TrialRecord, record_to_json
from jobs.slot import Slot, SlotDiedError
from jobs.spec import TrialSpec, spec_from_json

_MAY_BE_THE_GPUS = (Outcome.FAILED, Outcome.CRASHED, Outcome.TIMED_OUT)
INFRASTRUCTURE_RETRIES = 2
"""How often a trial is begun again that lost its slot, its actor or its node."""


class GpuLostError(RuntimeError):
    """The slot's GPU answers no more; ``node_id`` is Ray's name of its node."""

    def __init__(self, node_id: str, reason: str) -> None:
        super().__init__(node_id, reason)
        self.node_id = node_id

    def __str__(self) -> str:
        return f"the slot's GPU answers no more: {self.args[1]}"


class SlotTrainable(tune.Trainable):
    """An actor that keeps one slot for as long as it lives; each step is one of our trials, most often the only one."""

    def setup(self, config: dict[str, Any]) -> None:
        self._slot: Slot | None = None
        self._ends_at = time.monotonic() + config["seconds_left"]

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._ends_at = time.monotonic() + new_config["seconds_left"]
        return True

    def step(self) -> dict[str, Any]:
        specs = self.config["specs"]
        spec = spec_from_json(json.loads(specs[self.iteration]))
        _require_gpu()
        if self._slot is None:
            self._slot = Slot(spec.needs.cpus)
        record = self._run(self._slot, spec)
        if record.outcome in _MAY_BE_THE_GPUS:
            _require_gpu()
        return {"record": json.dumps(record_to_json(record)), "done": self.iteration + 1 == len(specs)}

    def _run(self, slot: Slot, spec: TrialSpec) -> TrialRecord:
        """The trial's record; a slot that dies under it is tried once more."""
        died = ""
        for _ in range(INFRASTRUCTURE_RETRIES):
            left = max(1.0, self._ends_at - time.monotonic())
            try:
                return slot.run(spec, min(spec.measure.deadline_seconds, left))
            except SlotDiedError as error:
                _require_gpu()
                died = str(error)
        return crashed(spec, f"{died}, {INFRASTRUCTURE_RETRIES} times", environment.describe())

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None  # a measurement has no state worth keeping

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def cleanup(self) -> None:
        if self._slot is not None:
            self._slot.close()


def _require_gpu() -> None:
    """Raises GpuLostError where the actor's GPU is lost: what comes of a trial there says nothing of the trial."""
    if reason := nvml.lost():
        raise GpuLostError(ray.get_runtime_context().get_node_id(), reason)


def crashed(spec: TrialSpec, reason: str, where: Mapping[str, Any]) -> TrialRecord:
    killed_by_ray = "OutOfMemoryError" in reason or "memory pressure" in reason or "low on memory" in reason
    outcome = Outcome.HOST_OUT_OF_MEMORY if killed_by_ray else Outcome.CRASHED
    reason = reason.partition(". ")[0][:300]
    return TrialRecord(spec=spec, outcome=outcome, reason=reason, started_at=time.time(), environment=where)
