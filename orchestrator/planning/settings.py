"""A checked configuration as frozen data: ``SweepConfig`` and its parts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from jobs.spec import Choice, DataSpec, MeasureSpec, ModelSpec, OwnCode, to_json
from orchestrator.planning.axes import SEQUENCE_LENGTH, Assignment, Grid, overlay
from orchestrator.planning.loggers import LoggerChoices
from orchestrator.storage.location import Location

ProfileChoice = Literal["frontier", "all", "none"]
"""Which configurations are profiled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUpPolicy:
    """What is measured again when a search on GPUs has ended, and what that may cost."""

    verify_budgets: bool = True
    """Run each budget's pick again with the GPU's memory capped to the budget."""
    tie_break_rounds: int = 4
    """Rounds in which a budget's close candidates run again, interleaved on one GPU."""
    profiles: int = 8
    """Configurations to profile: budgets' picks, then the frontier."""
    slot_share: float = 0.25
    """All follow-ups together may take this share of the search's own slot time,"""
    min_seconds: float = 60.0
    """and this much after any search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuFallback:
    """What replaces ``measure`` on a machine without a GPU, and the whole sweep's seconds there."""

    warmup_steps: int = 2
    steps: int | None = 10
    time_budget_seconds: float = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Resources:
    """What a trial may take of its node; 0 is "auto": its GPU's share, which the node decides."""

    cpus_per_trial: int = 0
    host_bytes: int = 0
    nvme_path: str | None = None
    gpu_models: tuple[str, ...] = ()
    """Words in the names of the GPU models to measure on; empty: all models."""
    screen_gpus: bool = True
    """Compare the GPUs of a model before measuring, and leave out throttled or slow ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchChoice:
    """Which search walks the plan, and its options."""

    kind: str = "grid"
    options: Mapping[str, Any] = field(default_factory=dict)
    is_space: bool = False
    """Whether the plan is a space to choose from, of which only measured trials get a record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig:
    """One sweep, checked. Axis values are those of the file; sizes are bytes, times seconds."""

    name: str
    path: Path
    model: ModelSpec
    data: DataSpec
    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    deepspeed: Mapping[str, Any] | None = None
    """The user's own DeepSpeed file; the offload axis adds to it."""
    axes: Grid = field(default_factory=dict)
    subsets: Mapping[str, Grid] = field(default_factory=dict)
    """Named grids laid over ``axes``; when there are any, the plan is their union."""
    exclude: tuple[Grid, ...] = ()
    trials: tuple[Assignment, ...] = ()
    baseline: Assignment = field(default_factory=dict)
    """Every axis with a value.

    A trial that names no value takes this one, and the report compares with it.
    """
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    repeats: int = 1
    follow_up: FollowUpPolicy = field(default_factory=FollowUpPolicy)
    cpu_fallback: CpuFallback = field(default_factory=CpuFallback)
    resources: Resources = field(default_factory=Resources)
    budgets: tuple[int, ...] = ()
    """Device memory in bytes: the report names the best configuration within each."""
    search: SearchChoice = field(default_factory=SearchChoice)
    loggers: LoggerChoices = field(default_factory=dict)
    """Experiment loggers to report to."""
    output: Location = Path("runs")
    own_code: OwnCode | None = None
    """The user's own Trainer, callbacks or collator, in every trial."""
    notes: tuple[str, ...] = ()
    """What to tell the user about the file: old keys that have a new name."""

    @property
    def axes_in_play(self) -> tuple[str, ...]:
        """The axes with more than one value somewhere in the sweep, in the order of the file."""
        # Grids first, in their order, then what single trials add.
        grids: list[Grid] = [overlay(self.axes, subset) for subset in self.subsets.values()]
        grids = grids or [self.axes]
        grids += [{axis: (value,) for axis, value in trial.items()} for trial in self.trials]
        values: dict[str, set[Choice]] = {}
        for axis in dict.fromkeys(itertools.chain(self.axes, *grids)):
            # A grid that leaves an axis out has the baseline's value on it.
            unnamed = (self.baseline.get(axis),)
            values[axis] = set(itertools.chain(*(grid.get(axis, unnamed) for grid in grids)))
        return tuple(axis for axis, chosen in values.items() if len(chosen) > 1)

    @property
    def data_length(self) -> int | None:
        """Tokens of the samples of the data; None for a file, whose rows say it."""
        if self.data.synthetic is None:
            return None
        return self.data.synthetic.sequence_length

    def data_of(self, choices: Assignment) -> DataSpec:
        """The data of a trial with these choices: the config's, at the length that they name."""
        length = choices.get(SEQUENCE_LENGTH)
        if not isinstance(length, int):
            return self.data
        return self.data.of_length(length)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values: what a run folder keeps of its configuration."""
        # Paths and URIs are text in JSON; notes are for the terminal alone.
        raw: dict[str, Any] = to_json(self)
        del raw["notes"]
        return {**raw, "path": str(self.path), "output": str(self.output)}
