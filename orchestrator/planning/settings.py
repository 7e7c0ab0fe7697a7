"""A checked configuration as frozen data: ``SweepConfig``."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from jobs.spec import Choice, DataSpec, MeasureSpec, ModelSpec, UserCode, from_json, to_json
from orchestrator.planning.choices.axes import SEQUENCE_LENGTH, Choices, Grid, Grids
from orchestrator.planning.document import Source
from orchestrator.planning.keys.config_model import CpuFallback, FollowUpPolicy, Resources
from orchestrator.planning.keys.search_options import DEFAULT_SEARCH, SearchOptions
from orchestrator.storage.location import Location


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepConfig(Grids):
    """One sweep, checked. Axis values are those of the file; sizes are bytes, times seconds.
    ``baseline`` has a value of every axis."""

    name: str
    source: Source
    model: ModelSpec
    data: DataSpec
    training_arguments: Mapping[str, Any] = field(default_factory=dict)
    left_aside: Mapping[str, Any] = field(default_factory=dict)
    """The user's arguments that no trial uses; an exported training has their epochs and seed."""
    deepspeed: Mapping[str, Any] | None = None
    """The user's own DeepSpeed file; the offload axis adds to it."""
    measure: MeasureSpec = field(default_factory=MeasureSpec)
    repeats: int = 1
    follow_up: FollowUpPolicy = field(default_factory=FollowUpPolicy)
    cpu_fallback: CpuFallback = field(default_factory=CpuFallback)
    resources: Resources = field(default_factory=Resources)
    budgets: tuple[int, ...] = ()
    """Device memory in bytes: the report names the best configuration within each."""
    search: SearchOptions = DEFAULT_SEARCH
    loggers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Experiment loggers to report to, each with its arguments."""
    output: Location = Path("runs")
    own_code: UserCode | None = None
    """The user's own Trainer, callbacks or collator, in every trial."""
    notes: tuple[str, ...] = ()
    """What to tell the user about the file: arguments that are left aside."""

    @property
    def axes_in_play(self) -> tuple[str, ...]:
        """The axes with more than one value somewhere in the sweep, in the order of the file."""
        # Grids first, in their order, then what single trials add to them or to the baseline.
        singles = ({axis: (value,) for axis, value in trial.items()} for trial in self.trials)
        grids: list[Grid] = [*(self.grids or [{}]), *singles]
        values: dict[str, set[Choice]] = {}
        for axis in dict.fromkeys(itertools.chain(self.axes, *grids)):
            # A grid that leaves an axis out has the baseline's value on it.
            unnamed = (self.baseline.get(axis),)
            values[axis] = set(itertools.chain(*(grid.get(axis, unnamed) for grid in grids)))
        return tuple(axis for axis, chosen in values.items() if len(chosen) > 1)

    def of_trials(self, trials: tuple[Choices, ...]) -> Self:
        """The same with these trials, once each, in place of its grids."""
        return replace(self, axes={}, subsets={}, exclude=(), trials=trials, repeats=1)

    def data_of(self, choices: Choices) -> DataSpec:
        """The data of a trial with these choices: the config's, at the length that they name."""
        length = choices.get(SEQUENCE_LENGTH)
        return self.data.of_length(length) if isinstance(length, int) else self.data

    def to_json(self) -> dict[str, Any]:
        """Everything as plain JSON values: what a run folder keeps of its configuration."""
        # Paths and URIs are text in JSON; notes are for the terminal alone.
        raw: dict[str, Any] = to_json(self)
        del raw["notes"], raw["source"]
        for name in ("follow_up", "cpu_fallback", "resources", "search"):
            raw[name] = getattr(self, name).model_dump(mode="json")
        return {**raw, "output": str(self.output)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json`` for what decides how a trial runs. Raises KeyError, TypeError
        or ValueError if the values are not those of a configuration."""
        # Sections were checked when they were recorded.
        fallback, resources = dict(raw["cpu_fallback"]), dict(raw["resources"])
        return cls(
            name="",
            source=Path(),
            model=from_json(ModelSpec, raw["model"]),
            data=from_json(DataSpec, raw["data"]),
            training_arguments=raw["training_arguments"],
            deepspeed=raw["deepspeed"],
            measure=from_json(MeasureSpec, raw["measure"]),
            cpu_fallback=CpuFallback.model_construct(None, **fallback),
            resources=Resources.model_construct(None, **resources),
            own_code=from_json(UserCode, raw["own_code"]) if raw.get("own_code") else None,
        )
