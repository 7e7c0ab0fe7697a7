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

STEADY_FLOOR = 0.01
"""By how much the speeds of GPU-bound rows in separate runs may differ beside their intervals."""


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
        if self.kind == "slower":
            return 1 - self.ratio
        return self.ratio - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MedianShift:
    """The median change of speed of all steady rows, with its interval."""

    ratio: float
    low: float
    high: float
    rows: int

    @property
    def is_real(self) -> bool:
        """Whether the shift is more than chance, and large enough to be reported."""
        includes_one = self.low <= 1 <= self.high
        # Half the floor of a single row: the median averages over many rows.
        return not includes_one and abs(self.ratio - 1) > STEADY_FLOOR / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What became of the configurations of one run in another."""

    matched: int
    """Configurations that ended ok in both."""
    unsteady: int
    """Of those: speeds too unsteady to be judged."""
    other_hosts: int
    """Of those: not judged by speed because the host sets part of the pace, and the hosts differ.
    """
    losses_compared: bool
    """False where seed or length of training differ, which decide batches and learning rates."""
    changes: tuple[Change, ...]
    """Worst kind first, the largest change first."""
    shift: MedianShift | None
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
        return tuple(own for own in worse if own.ratio is None or own.loss > tolerance)

    def fails(self, tolerance: float) -> bool:
        """Whether a configuration, or the median of all, got worse by more than a tolerance."""
        shift = self.shift
        is_slower = shift is not None and shift.is_real and 1 - shift.ratio > tolerance
        return is_slower or bool(self.worse_than(tolerance))
