"""Cap checks: does a pick fit its budget when the GPU's memory is capped to this budget?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from jobs.record import Outcome
from jobs.spec import Purpose
from orchestrator.storage.tables.rows import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class CapCheck:
    """One configuration that ran again with no more device memory than a budget.

    The CUDA context and the libraries count as device memory.
    """

    trial_id: str
    follows_trial: str
    """The trial that was checked."""
    budget_bytes: int
    outcome: Outcome
    memory_bytes: int | None
    """The peak that NVML reported; None if the trial ended before a peak was read."""
    samples_per_second: float | None

    @property
    def fits(self) -> bool:
        """Whether the trial ended ok and took no more memory than the budget."""
        if self.outcome is not Outcome.OK or self.memory_bytes is None:
            return False
        return self.memory_bytes <= self.budget_bytes

    @property
    def fails(self) -> bool:
        """Whether the trial shows that the configuration does not fit.

        A crash or a timeout shows nothing about memory.
        """
        return self.outcome is Outcome.OUT_OF_MEMORY or (
            self.outcome is Outcome.OK and not self.fits
        )


def cap_checks(rows: Iterable[Row]) -> tuple[CapCheck, ...]:
    """The cap checks among the rows of one environment."""
    return tuple(
        CapCheck(
            trial_id=row["trial_id"],
            follows_trial=row["follows_trial"],
            budget_bytes=row["memory_cap_bytes"],
            outcome=Outcome(row["outcome"]),
            memory_bytes=row.get("device_peak_bytes"),
            samples_per_second=row.get("samples_per_second"),
        )
        for row in rows
        if row.get("purpose") == Purpose.CAP_CHECK and row["outcome"] != Outcome.SKIPPED
    )


def decisive_check(
    checks: Iterable[CapCheck], trial_ids: Sequence[str], budget_bytes: float
) -> CapCheck | None:
    """The check that settles whether a configuration fits a budget; None if no check does.

    A configuration that fits under a cap fits under every larger cap. One that fails under a cap
    fails under every smaller cap.
    """
    own = [check for check in checks if check.follows_trial in trial_ids]
    failing = [check for check in own if check.fails and check.budget_bytes >= budget_bytes]
    fitting = [check for check in own if check.fits and check.budget_bytes <= budget_bytes]
    # The cap nearest to the budget says most about it.
    budget = attrgetter("budget_bytes")
    return min(failing, key=budget, default=None) or max(fitting, key=budget, default=None)
