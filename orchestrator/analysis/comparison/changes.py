"""What a comparison of two runs says: changes of single configurations, and of all together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobs.record import Outcome
from orchestrator.analysis.comparison.run_differences import Difference

ChangeKind = Literal[
    "regressed", "loss mismatch", "slower", "more memory", "fixed", "faster", "less memory"
]
WORSE: tuple[ChangeKind, ...] = ("regressed", "loss mismatch", "slower", "more memory")
"""Changes for the worse, the worst kind first."""
BETTER: tuple[ChangeKind, ...] = ("fixed", "faster", "less memory")
"""Changes for the better, the best kind first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One configuration, changed in one way."""

    kind: ChangeKind
    label: str
    before: float | None = None
    """Samples per second, or bytes; None where the change is not one of a figure."""
    after: float | None = None
    ratio: float | None = None
    """After divided by before."""
    margin: float | None = None
    """The relative change that chance may explain."""
    outcome: Outcome | None = None
    """Of the run in which the configuration did not end ok."""
    reason: str = ""
    """Why the configuration did not end ok."""

    @property
    def loss(self) -> float:
        """The relative amount by which speed fell or memory grew. Needs a ratio."""
        assert self.ratio is not None
        # Ratios are new by old: for a speed below 1 is worse, for a memory above 1.
        if self.kind == "slower":
            return 1 - self.ratio
        return self.ratio - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """The mean change of speed of several GPU-bound rows, with its interval."""

    ratio: float
    """Speed after divided by speed before; of one technique: relative to all other rows."""
    low: float
    high: float
    rows: int
    axis: str = ""
    """The axis of the technique that the rows share; "" for all rows."""
    value: str = ""

    @property
    def is_real(self) -> bool:
        """Whether equal runs hardly ever differ that much."""
        return not self.low <= 1 <= self.high

    @property
    def smallest_visible(self) -> float:
        """The relative change that would have been called real."""
        return self.high / self.ratio - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedChanges:
    """What changed in speed: single configurations, everything together, and techniques."""

    single: tuple[Change, ...]
    shift: Shift | None
    """Of all GPU-bound rows; None with too few of them."""
    of_techniques: tuple[Shift, ...]
    """Techniques whose rows changed against all others."""
    smallest_visible: float | None
    """The relative change of a single GPU-bound configuration that would be found, in the median;
    None without one.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What became of the configurations of one run in another."""

    matched: int
    """Configurations that ended ok in both."""
    unsteady: int
    """Of those: speeds too unsteady to be judged."""
    host_bound: int
    """Of those: not judged by speed because the host sets the pace, not the GPU."""
    without_gpu: int
    """Of those: not judged by speed because it is the processor's, and other programs share it."""
    other_hosts: int
    """Of those: not judged by speed because the hosts differ, and the host sets part of the pace.
    """
    losses_compared: bool
    """False where seed or length of training differ, which decide batches and learning rates."""
    changes: tuple[Change, ...]
    """Worst kind first, the largest change first."""
    shift: Shift | None
    """Of all GPU-bound rows."""
    technique_shifts: tuple[Shift, ...]
    """Techniques whose GPU-bound rows changed against all others."""
    smallest_visible: float | None
    """The relative change of speed of a single GPU-bound configuration that would be found, in the
    median; None without one.
    """
    only_before: int
    """Configurations with no finished trial in the later run."""
    only_after: int
    """Configurations with no finished trial in the earlier run."""
    differences: tuple[Difference, ...]
    """Of hardware, versions, model and data."""

    def worse_than(self, tolerance: float) -> tuple[Change, ...]:
        """What got worse by more than a relative tolerance.

        Regressions and loss mismatches have no ratio and always count.
        """
        worse = [change for change in self.changes if change.kind in WORSE]
        return tuple(item for item in worse if item.ratio is None or item.loss > tolerance)

    def fails(self, tolerance: float) -> bool:
        """Whether a configuration, a technique or everything got worse by more than a tolerance."""
        shifts = list(self.technique_shifts)
        if self.shift is not None and self.shift.is_real:
            shifts.append(self.shift)
        is_slower = any(1 - shift.ratio > tolerance for shift in shifts)
        return is_slower or bool(self.worse_than(tolerance))
