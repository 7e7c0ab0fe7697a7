"""A checked configuration as frozen data: ``SweepConfig`` and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jobs.spec import Choice, DataSpec, MeasureSpec, ModelSpec, to_json
from orchestrator.planning.axes import Assignment, Grid
from orchestrator.planning.loggers import Chosen
from orchestrator.storage.location import Location

AnatomyOf = Literal["frontier", "all", "none"]
"""Which trials are taken apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUpSpec:
    """What is looked at again when a search on GPUs has ended, and what that may cost."""

    verify: bool = True
    """Run each budget's pick under a cap of its size."""
    turns: int = 4
    """Trials of each of a budget's close candidates, in turns on one GPU."""
    anatomies: int = 8
    """Configurations to take apart: budgets' picks, then the frontier."""
    share: float = 0.25
    """All of it may take so much of the search's own slot time,"""
    least_seconds: float = 60.0
    """and this much of any search's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuSpec:
    """What ``measure`` becomes on a machine without a GPU, and the time (seconds) the whole sweep gets there."""

    warmup_steps: int = 2
    steps: int | None = 2
    time_budget_seconds: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a trial may take of its node; 0 is "auto": its GPU's share, which only the node can tell."""

    cpus_per_trial: int = 0
    host_bytes: int = 0
    nvme_path: str | None = None
    gpu_models: tuple[str, ...] = ()
    """Words of the GPU models to measure on; none: all that there are."""
    calibrate: bool = True
    """Compare GPUs of a model before measuring, and leave out those that are not well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSpec:
    """Which search walks the plan, and its own options."""

    kind: str = "grid"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig:
    """One sweep, checked. Axis values are those of the file; sizes are bytes, times seconds."""

    name: str
    path: Path
    model: ModelSpec
    data: DataSpec
    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    """The user's own DeepSpeed file, under whatever the offload axis adds."""
    axes: Grid = field(default_factory=dict)
    subsets: Mapping[str, Grid] = field(default_factory=dict)
    """Named grids laid over ``axes``; when there are any, the plan is their union."""
    exclude: tuple[Grid, ...] = ()
    trials: tuple[Assignment, ...] = ()
    baseline: Assignment = field(default_factory=dict)
    """Every axis with a value: what a trial takes where it names none, and what the report compares with."""
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    follow_ups: FollowUpSpec = field(default_factory=FollowUpSpec)
    repeats: int = 1
    cpu: CpuSpec = field(default_factory=CpuSpec)
    resources: Resources = field(default_factory=Resources)
    budgets: tuple[int, ...] = ()
    """Device memory in bytes: the report names the best configuration within each."""
    search: SearchSpec = field(default_factory=SearchSpec)
    trackers: Chosen = field(default_factory=dict)
    """Experiment trackers to report to."""
    output: Location = Path("runs")

    @property
    def axes_in_play(self) -> tuple[str, ...]:
        """The axes that take more than one value somewhere in the sweep, in the order of the file."""
        values: dict[str, set[Choice]] = {}
        for grid in (self.axes, *self.subsets.values()):
            for axis, listed in grid.items():
                values.setdefault(axis, set()).update(listed)
        for axis, value in (pair for trial in self.trials for pair in trial.items()):
            values.setdefault(axis, {self.baseline.get(axis)}).add(value)
        return tuple(axis for axis, chosen in values.items() if len(chosen) > 1)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values: what a run folder keeps of its configuration."""
        return {**to_json(self), "path": str(self.path), "output": str(self.output)}
