"""The actor under Tune that keeps one GPU's slot, and the record of a trial whose actor was lost."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping
from typing import Any

import ray
from ray import tune

from jobs.isolation.slot import Slot, SlotDiedError
from jobs.node import cuda_probe, environment, gpu_sharing, nvml
from jobs.record import Outcome, TrialRecord, record_to_json
from jobs.spec import TrialSpec, spec_from_json

INFRASTRUCTURE_RETRIES = 2
"""How often a trial is begun again that lost its slot, its actor or its node, or had not its GPU to itself."""
LOST, DEAD, SHARED, UNLIKE = "lost", "dead", "shared", "unlike"
"""What a GPU is on which nothing is measured: without an answer to NVML, without one to CUDA, somebody else's too, or
of another model than the trial is for.
"""
_CUDA = re.compile("CUDA|cuBLAS|cuDNN", re.IGNORECASE)
_RELEASE_SECONDS = 10.0
"""The driver takes a moment to free a killed process's memory, which is nobody else's; and some visitors leave soon."""
_WATCH_SECONDS = 2.0


class SlotTrainable(tune.Trainable):
    """An actor that keeps one slot for as long as it lives; each step is one of our trials, most often the only one.

    Ray cannot be told to leave a GPU out. Where one is unwell its actor gives its trials back, in a result that says
    what is wrong, and keeps the GPU: its further steps only look whether it is well again, which ends the Tune trial.
    """

    def setup(self, config: dict[str, Any]) -> None:
        self._slot: Slot | None = None
        self._has_company = False
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._ends_at = time.monotonic() + new_config["seconds_left"]
        self._unwell = ""
        return True

    def step(self) -> dict[str, Any]:
        if self._unwell:
            time.sleep(_WATCH_SECONDS)
            look = {LOST: nvml.lost, SHARED: self._shared}.get(self._unwell, lambda: self._unwell)
            return {**self._said(reason := look()), "done": not reason}
        if not (specs := self.config["specs"]):
            return {"done": True}  # nothing is wanted any more
        spec = spec_from_json(json.loads(specs[self.iteration]))
        record, died = None, ""
        for _ in range(INFRASTRUCTURE_RETRIES):
            if found := self._unfit():
                return self._give_back(*found)
            try:
                record = _after(record, self._run(spec))
            except SlotDiedError as error:
                died = str(error)
            else:
                if not self._is_to_be_repeated(record):
                    break
        if record is None:
            reason = f"{died}, {INFRASTRUCTURE_RETRIES} times"
            record = crashed(spec, reason, environment.describe())
        if found := _blamed(record):
            return self._give_back(*found)
        return {
            "record": json.dumps(record_to_json(record)),
            "done": self.iteration + 1 == len(specs),
        }

    def _run(self, spec: TrialSpec) -> TrialRecord:
        if self._slot is None:
            self._slot = Slot(spec.needs.cpus)
        left = max(1.0, self._ends_at - time.monotonic())
        return self._slot.run(spec, min(spec.measure.timeout_seconds, left))

    def _is_to_be_repeated(self, record: TrialRecord) -> bool:
        """Somebody came onto the GPU beside the trial, which tells little then, its memory and its end included; and
        has left again soon, or the trial can go elsewhere. Who was there beside the last one, too, is not news."""
        was_there, self._has_company = (
            self._has_company,
            gpu_sharing.is_shared(record.measurements.get("warnings", ())),
        )
        is_time = self._ends_at - time.monotonic() > record.slot_seconds
        if was_there or not (self._has_company and is_time):
            return False
        with nvml.session():
            return not (self.config["may_share"] and self._stays())

    def _give_back(self, unwell: str, reason: str) -> dict[str, Any]:
        self._unwell = unwell
        return {**self._said(reason), "done": False}

    def _said(self, reason: str) -> dict[str, Any]:
        gpu = f"GPU {','.join(map(str, ray.get_gpu_ids()))} of {environment.node()}"
        return {
            "unwell": self._unwell,
            "gpu": gpu,
            "reason": reason,
            "gpu_model": self.config["gpu_model"],
        }

    def _unfit(self) -> tuple[str, str] | None:
        """What the GPU is, and why, if no trial is to begin on it."""
        with nvml.session():  # or it would be initialised for every question, while the GPU waits
            return self._looked_at()

    def _looked_at(self) -> tuple[str, str] | None:
        if reason := nvml.lost():
            return LOST, reason
        if (model := environment.describe()["gpu_model"]) and model != self.config[
            "expected_model"
        ]:
            return UNLIKE, f"it is a {model}"
        may_share = self.config["may_share"]
        is_news = self._slot is None or not may_share
        reason = self._stays() if is_news else ""
        return None if may_share or not reason else (SHARED, reason)

    def _stays(self) -> str:
        """Who else is on the GPU, and has not left it in a while; or nobody."""
        give_up = time.monotonic() + _RELEASE_SECONDS
        while (reason := self._shared()) and (time.monotonic() < give_up or self._children > 1):
            time.sleep(0.02)
        return reason

    def _shared(self) -> str:
        return nvml.shared(waiting=min(1, self._children))

    @property
    def _children(self) -> int:
        return 0 if self._slot is None else self._slot.children

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None  # a measurement has no state worth keeping

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None

    def cleanup(self) -> None:
        if self._slot is not None:
            self._slot.close()


def _after(earlier: TrialRecord | None, record: TrialRecord) -> TrialRecord:
    """What came of a trial at last; it has cost its slot what it did before, too."""
    if earlier is None:
        return record
    seconds = earlier.slot_seconds + record.slot_seconds
    return dataclasses.replace(record, started_at=earlier.started_at, slot_seconds=seconds)


def _blamed(record: TrialRecord) -> tuple[str, str] | None:
    """What the GPU is, and why, if what came of a trial says something of it rather than of the trial."""
    told = f"{record.reason} {record.log}" if record.outcome is Outcome.FAILED else ""
    if record.outcome not in (Outcome.CRASHED, Outcome.TIMED_OUT) and not _CUDA.search(told):
        return None
    if reason := nvml.lost():
        return LOST, reason
    if reason := cuda_probe.dead():
        return DEAD, reason
    return None


def crashed(spec: TrialSpec, reason: str, where: Mapping[str, Any]) -> TrialRecord:
    killed_by_ray = (
        "OutOfMemoryError" in reason or "memory pressure" in reason or "low on memory" in reason
    )
    outcome = Outcome.HOST_OUT_OF_MEMORY if killed_by_ray else Outcome.CRASHED
    reason = reason.partition(". ")[0][:300]
    return TrialRecord(
        spec=spec, outcome=outcome, reason=reason, started_at=time.time(), environment=where
    )
