"""Budgets seen, not inferred: what came of running a configuration again under a cap of a budget's size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobs.record import Outcome
from orchestrator.analysis.pareto import Row

BUDGET = "budget"
"""The purpose of such trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One configuration run again with the device memory that a budget allows, context and libraries included."""

    trial_id: str
    follows: str
    """The trial that made it a pick."""
    budget_bytes: int
    outcome: Outcome
    reason: str
    memory_bytes: int | None
    """What NVML saw it take; None where it did not come so far."""
    samples_per_second: float | None

    @property
    def fits(self) -> bool:
        """It trained, and took no more than the budget."""
        return (
            self.outcome is Outcome.OK
            and self.memory_bytes is not None
            and self.memory_bytes <= self.budget_bytes
        )

    @property
    def fails(self) -> bool:
        """It was seen not to fit. A crash or a deadline says nothing of that."""
        return self.outcome is Outcome.OUT_OF_MEMORY or (
            self.outcome is Outcome.OK and not self.fits
        )


def checks(rows: Iterable[Row]) -> tuple[Check, ...]:
    """What the rows of one environment say of budgets; all other rows are passed over."""
    return tuple(
        _check(row)
        for row in rows
        if row.get("purpose") == BUDGET and row["outcome"] != Outcome.SKIPPED
    )


def evidence(
    checks: Iterable[Check], trial_ids: Sequence[str], budget_bytes: float
) -> Check | None:
    """What was seen of a configuration in a budget, the nearest to it; None where that does not settle the question.

    What fits a cap fits every larger one, and what fails under one fails under every smaller.
    """
    own = [check for check in checks if check.follows in trial_ids]
    fitting = [check for check in own if check.fits and check.budget_bytes <= budget_bytes]
    failing = [check for check in own if check.fails and check.budget_bytes >= budget_bytes]
    nearest = min(failing, key=lambda check: check.budget_bytes, default=None)
    return nearest or max(fitting, key=lambda check: check.budget_bytes, default=None)


def _check(row: Row) -> Check:
    return Check(
        trial_id=row["trial_id"],
        follows=row["follows"],
        budget_bytes=row["memory_cap_bytes"],
        outcome=Outcome(row["outcome"]),
        reason=row["reason"] or "",
        memory_bytes=row.get("device_used_bytes"),
        samples_per_second=row.get("samples_per_second"),
    )
