"""What the driver and a slot's actor send each other."""

import enum
from dataclasses import dataclass

from jobs.spec import TrialSpec

RECORD = "record"
"""Key of an actor's result: a ``TrialRecord``."""
UNHEALTHY = "unhealthy"
"""Key of an actor's result: an ``UnhealthyGpu``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The trials that a slot runs next. The driver sends them before it asks the actor to train."""

    specs: tuple[TrialSpec, ...]
    """One after another; empty if there is nothing left to run."""
    seconds_left: float
    """What is left of the sweep's time budget, or less if the search allows less. It is not a
    deadline, because clocks may differ."""
    may_share: bool
    """Whether to measure on the GPU although other processes use it, too."""
    gpu_model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotProcess:
    """The process of a slot's actor, so that it can be killed if the actor does not answer."""

    node_id: str
    """Ray's id of its node."""
    pid: int
    start_ticks: int
    """``start_ticks_of`` in slot_watch.py. A later process with the same pid has others."""


class GpuProblem(enum.StrEnum):
    """Why nothing is measured on a GPU."""

    LOST = "lost"
    """It does not answer NVML."""
    DEAD = "dead"
    """It answers NVML, but every CUDA call fails."""
    SHARED = "shared"
    """Other processes use it, too."""
    OTHER_MODEL = "other_model"
    """No trial is planned for its model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnhealthyGpu:
    """A GPU that cannot run its trials now, and why. The trials go to other GPUs."""

    problem: GpuProblem
    reason: str
    """What NVML or CUDA said. Empty once the GPU is fit again."""
    planned_model: str
    found_model: str = ""
    """The GPU's real model, if no trial is planned for this model."""
    gpu: str = ""
    """The name of the GPU in messages: ``GPU 0 of node1``."""
    node_id: str = ""
    """Ray's id of its node."""
