"""A search's check on itself: what it would have left out, measured all the same."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.record import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """A configuration that would have been skipped, drawn at random and measured nevertheless."""

    trial_id: str
    rule: str
    """Why it would have been skipped."""
    outcome: Outcome
    memory_error: float | None = None
    """Predicted over measured memory, less one; None where one of them is missing."""
    speed_error: float | None = None
    """Predicted over measured speed, less one."""
    contradicts: bool = False
    """It was on the frontier beyond the tolerance, or fitted though it should not have."""


def account_of(audits: Sequence[Audit], tolerance: float) -> dict[str, Any]:
    """How many were audited and contradicted the search, and how far off its predictions of them were."""
    return {
        "audited": len(audits),
        "contradicted": sum(one.contradicts for one in audits),
        "tolerance": tolerance,
        "memory_error": _errors(one.memory_error for one in audits),
        "speed_error": _errors(one.speed_error for one in audits),
    }


def _errors(errors: Iterable[float | None]) -> dict[str, float] | None:
    known = [abs(error) for error in errors if error is not None]
    return {"median": statistics.median(known), "largest": max(known)} if known else None
