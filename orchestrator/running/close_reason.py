"""Why a session starts nothing more."""

from __future__ import annotations

import enum


class CloseReason(enum.StrEnum):
    """Why a session starts nothing more. The value is the rule of trials that did not run."""

    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"
    NO_NODES = "no_nodes"
    UNWRITABLE = "unwritable"
    ENDED = "ended"

    @property
    def sentence(self) -> str:
        """The reason in the records of trials that did not run."""
        return f"{_WHAT_HAPPENED[self]} before this trial could start"


_WHAT_HAPPENED = {
    CloseReason.TIME_BUDGET: "the sweep's time budget ended",
    CloseReason.INTERRUPTED: "the sweep was interrupted",
    CloseReason.NO_NODES: "the last node with a fit GPU was lost",
    CloseReason.UNWRITABLE: "the run folder could not be written",
    CloseReason.ENDED: "the sweep ended",
}
