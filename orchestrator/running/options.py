"""The options that all measuring verbs share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """On which cluster to measure, for how long, and which trials."""

    address: str | None = None
    """Address of a Ray cluster. None: that of ``RAY_ADDRESS``, or else a Ray started here."""
    time_budget_seconds: float | None = None
    resume: bool = False
    """Continue a run: repeat nothing that has finished."""
    fresh: bool = False
    """Measure everything again."""
    force: bool = False
    """Write into a folder that holds other files than a run's."""
    as_json: bool = False
    """Print the result as JSON on stdout, and progress on stderr."""
