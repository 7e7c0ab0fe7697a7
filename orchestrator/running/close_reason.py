"""The reasons for which a session starts no further trial."""

from __future__ import annotations

import dataclasses
import enum

from jobs.record import Outcome, TrialRecord

_OWN_TIMEOUT_SHARE = 0.95
"""If a trial timed out before this share of its own timeout, the time budget ended it."""


class CloseReason(enum.StrEnum):
    """Why a session starts no further trial.

    The value is written to the column ``rule`` of the trials that did not run.
    """

    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"
    NO_NODES = "no_nodes"
    UNWRITABLE = "unwritable"
    FOLDER_LOST = "folder_lost"
    ENDED = "ended"

    @property
    def sentence(self) -> str:
        """The text of the column ``reason`` of the trials that did not run."""
        return f"{_WHAT_HAPPENED[self]} before this trial could start"


_WHAT_HAPPENED = {
    CloseReason.TIME_BUDGET: "the sweep's time budget ended",
    CloseReason.INTERRUPTED: "the sweep was interrupted",
    CloseReason.NO_NODES: "the last node with a fit GPU was lost",
    CloseReason.UNWRITABLE: "the run folder could not be written",
    CloseReason.FOLDER_LOST: "the run folder was moved, deleted or replaced",
    CloseReason.ENDED: "the sweep ended",
}


def with_budget_rule(record: TrialRecord) -> TrialRecord:
    """The record, changed to ``skipped`` if the sweep's time budget ended its trial."""
    # The slot gave the trial less time than its own timeout, because the budget was nearly used.
    own_timeout = _OWN_TIMEOUT_SHARE * record.spec.measure.timeout_seconds
    if record.outcome is not Outcome.TIMED_OUT or record.slot_seconds >= own_timeout:
        return record
    phase = record.phase or "start"
    return dataclasses.replace(
        record,
        outcome=Outcome.SKIPPED,
        rule=CloseReason.TIME_BUDGET.value,
        reason=f"the sweep's time budget ended while the trial was in phase {phase}",
    )
