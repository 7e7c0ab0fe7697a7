"""The data of an explanation: the parts of a difference, and what ran differently."""

from dataclasses import dataclass
from typing import Any, Literal

from jobs.flags import Flag
from jobs.spec import TrainingRecipe
from orchestrator.analysis.loss_parity.windows import CheckState, LossWindow

Source = Literal["anatomy", "columns"]
"""Where the parts of a breakdown come from: both trials' anatomies, or the table's columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two trials."""

    trial_id: str
    label: str
    samples_per_second: float
    memory_bytes: int
    flags: tuple[Flag, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something that was different: a part of a figure, an axis, a column of the table, or a figure
    of the anatomy."""

    name: str
    before: Any
    after: Any

    @property
    def change(self) -> float:
        """How much a part contributes to the difference of its figure."""
        return float(self.after - self.before)


@dataclass(frozen=True, kw_only=True, slots=True)
class Breakdown:
    """A figure's difference and its parts, which add up to it; the largest change first."""

    before: float
    after: float
    source: Source
    terms: tuple[Difference, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurves:
    """The losses of the steps that both trials have, up to the first that is not finite."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    windows: tuple[LossWindow, ...]
    """What loss parity compares; the reference is the first trial."""
    state: CheckState
    """The result of loss parity: matches, mismatch or not checked."""

    @property
    def furthest_step(self) -> int:
        """The step, counted from 0, at which the two losses differ most."""
        differences = [abs(b - a) for a, b in zip(self.before, self.after, strict=True)]
        return differences.index(max(differences))


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """The differences between two trials. "Before" is the trial that was named first."""

    hardware: str
    before: Side
    after: Side
    choices: tuple[Difference, ...]
    seconds_per_sample: Breakdown
    module_seconds: Breakdown | None
    """Of forward and backward pass, by class of module. None unless both were profiled."""
    memory_bytes: Breakdown
    losses: LossCurves | None
    runtime: tuple[Difference, ...]
    recipes: tuple[TrainingRecipe, TrainingRecipe]
    slower_profiles: tuple[float | None, float | None]
    """Busy time of the profiled step, divided by that of a counted one; None if at most 1.05."""
