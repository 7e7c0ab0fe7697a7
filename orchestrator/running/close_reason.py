"""The reasons for which a session starts no further trial, or ends one before its own timeout."""

import dataclasses
import enum

from jobs.record import Outcome, TrialRecord
from orchestrator.search.base import TOO_SLOW

_LIMIT_SHARE = 0.95
"""A trial that timed out before this share of a limit was ended by another limit."""


class CloseReason(enum.StrEnum):
    """Why a session starts no further trial: the ``rule`` of the trials that did not run."""

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


def with_limit_rule(record: TrialRecord, allowed_seconds: float) -> TrialRecord:
    """The record; ``skipped`` if the search's ``allowed_seconds`` or the time budget ended it."""
    own_timeout = _LIMIT_SHARE * record.spec.measure.timeout_seconds
    if record.outcome is not Outcome.TIMED_OUT or record.slot_seconds >= own_timeout:
        return record
    phase = record.phase or "start"
    rule: str = CloseReason.TIME_BUDGET.value
    reason = f"the sweep's time budget ended while the trial was in phase {phase}"
    if record.slot_seconds >= _LIMIT_SHARE * allowed_seconds:
        rule = TOO_SLOW
        reason = f"the search allowed {allowed_seconds:.0f} s, and it was still in phase {phase}"
    return dataclasses.replace(record, outcome=Outcome.SKIPPED, rule=rule, reason=reason)
