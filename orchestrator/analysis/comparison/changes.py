"""The result of a comparison: changes of single configurations, and of all of them together."""

from dataclasses import dataclass
from typing import Literal, get_args

from jobs.record import Outcome

ChangeKind = Literal[
    "regressed", "loss mismatch", "slower", "more memory", "fixed", "faster", "less memory"
]
KINDS: tuple[ChangeKind, ...] = get_args(ChangeKind)
WORSE = KINDS[:4]
"""Changes for the worse, the worst kind first. Those for the better come after them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One configuration, changed in one way."""

    kind: ChangeKind
    label: str
    before: float | None = None
    """Samples per second, or bytes. None if the change is one of the outcome or the losses."""
    after: float | None = None
    """In the later run. For a loss mismatch: new mean loss divided by the old one."""
    ratio: float | None = None
    """After divided by before."""
    all_rows: float | None = None
    """The ratio of the speeds of all rows that are limited by the same, in the median; None if it
    is no part of the decision. A row is called slower or faster than these."""
    margin: float | None = None
    """The largest relative change that chance can explain."""
    outcome: Outcome | None = None
    """How the configuration ended in the run in which it failed."""
    reason: str = ""
    """Why the configuration did not end ok."""

    def exceeds(self, tolerance: float) -> bool:
        """Whether speed fell or memory grew by more than this, or a trial failed or lost parity."""
        if self.kind not in WORSE or self.ratio is None:
            return self.kind in WORSE
        loss = 1 - self.ratio if self.kind == "slower" else self.ratio - 1
        return loss > tolerance


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """The mean change of speed of several GPU-bound rows, with its interval."""

    ratio: float
    """Speed after / speed before; for a technique, relative to the same ratio of all other rows."""
    low: float
    high: float
    rows: int
    axis: str = ""
    """The axis of the technique that the rows share; "" for all rows."""
    value: str = ""

    @property
    def is_real(self) -> bool:
        """Whether the interval excludes 1, so that chance is an unlikely explanation."""
        return not self.low <= 1 <= self.high

    @property
    def smallest_visible(self) -> float:
        """The smallest relative change that would have been called real."""
        # The interval is symmetric in the logarithm, so ``high / ratio`` is its half-width.
        return self.high / self.ratio - 1


SetupPart = Literal["environment", "model", "data", "training_arguments", "measure", "host"]
"""If "measure" differs, every step has another batch or learning rate, so losses cannot be
compared. The host limits the speed of rows that are not GPU-bound."""


@dataclass(frozen=True, slots=True)
class SetupDifference:
    """One setting that differs between two runs."""

    part: SetupPart
    name: str
    before: str
    after: str

    @property
    def label(self) -> str:
        """``gpu_model``, ``model architecture``, ``host gpus``."""
        return self.name if self.part == "environment" else f"{self.part} {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How the configurations of an earlier run changed in a later one."""

    matched: int
    """Configurations that ended ok in both runs. The next four are those not judged by speed."""
    unsteady: int
    host_bound: int
    without_gpu: int
    """They share a processor with other programs."""
    other_hosts: int
    """Their speed depends partly on the hosts, which differ."""
    losses_compared: bool
    """False if the seed or the length of the training differs, and so the batches or rates."""
    changes: tuple[Change, ...]
    """The worst kind first; within a kind, the largest change first."""
    shift: Shift | None
    """The mean change of all GPU-bound rows; None if there are too few."""
    technique_shifts: tuple[Shift, ...]
    """Techniques whose GPU-bound rows changed by more, or by less, than all other rows."""
    smallest_visible: float | None
    """The smallest share by which a single GPU-bound configuration can be slower so that this is
    found in nine of ten cases."""
    only_before: int
    """Configurations with no finished trial in the other run; so is ``only_after``."""
    only_after: int
    differences: tuple[SetupDifference, ...]

    def fails(self, tolerance: float) -> bool:
        """Whether a configuration, a technique or the whole run is worse by more than this."""
        shifts = [shift for shift in (*self.technique_shifts, self.shift) if shift is not None]
        return any(change.exceeds(tolerance) for change in self.changes) or any(
            shift.is_real and 1 - shift.ratio > tolerance for shift in shifts
        )
