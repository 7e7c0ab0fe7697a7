"""The Ray actor that keeps one GPU's slot under Tune."""

import dataclasses
import os
from typing import Any

import ray
from ray import tune

from jobs.node import environment
from jobs.node.processes import end_with_parent
from jobs.record import TrialRecord
from orchestrator.running.cluster.gpu_slot import GpuProbe, GpuSlot
from orchestrator.running.cluster.messages import (
    RECORD,
    UNHEALTHY,
    Assignment,
    SlotProcess,
    UnhealthyGpu,
)
from orchestrator.running.cluster.slot_watch import this_process


class SlotTrainable(tune.Trainable):
    """An actor that keeps one slot; each step is one of our trials. Ray offers no way to leave a
    GPU out, so an unfit one is kept until it is fit again, and the Tune trial ends."""

    def setup(self, config: dict[str, Any]) -> None:
        """Make the slot. Its processes start with the first trial."""
        # Ray's worker notices by itself that the raylet was killed, but not while it is stopped.
        end_with_parent(os.getppid())
        self._slot = GpuSlot(GpuProbe())

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def assign(self, assignment: Assignment) -> SlotProcess:
        """Take over what to run in the next steps; returns this process."""
        self._slot.assign(assignment)
        return this_process(ray.get_runtime_context().get_node_id())

    def step(self) -> dict[str, Any]:
        """A record, or the problem of the GPU. ``done`` is true if nothing is left to do."""
        result = self._slot.step()
        done = self._slot.is_done
        if result is None:
            return {"done": done}
        if isinstance(result, TrialRecord):
            return {RECORD: result, "done": done}
        return {UNHEALTHY: _located(result), "done": done}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: a measurement has no state worth keeping."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing."""

    def cleanup(self) -> None:
        self._slot.close()


def _located(gpu: UnhealthyGpu) -> UnhealthyGpu:
    numbers = ",".join(map(str, ray.get_gpu_ids())) or "without a number"
    name = f"GPU {numbers} of {environment.node()}"
    return dataclasses.replace(gpu, gpu=name, node_id=ray.get_runtime_context().get_node_id())
