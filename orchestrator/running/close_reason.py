"""The reasons for which a session starts no further trial, or ends one before its own timeout."""

import dataclasses
import enum
import math
import statistics
from collections.abc import Iterable

from jobs.record import Outcome, TrialRecord
from orchestrator.analysis.configuration import gpu_memory
from orchestrator.search.base import TOO_SLOW
from orchestrator.units import count, duration, memory

_LIMIT_SHARE = 0.95
"""A trial that timed out before this share of a limit was ended by another limit."""

_TRIALS = 3
"""The fewest trials that say which way to go."""
_START_SECONDS = 20.0
"""Time for Ray and the libraries to start."""


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
    if record.outcome is not Outcome.TIMED_OUT:
        return record
    phase = record.phase or "start"
    outcome, rule = Outcome.SKIPPED, CloseReason.TIME_BUDGET.value
    reason = f"the sweep's time budget ended while the trial was in phase {phase}"
    if record.slot_seconds >= _LIMIT_SHARE * record.spec.measure.timeout_seconds:
        outcome, rule, reason = record.outcome, record.rule, record.reason
    elif record.slot_seconds >= _LIMIT_SHARE * allowed_seconds:
        rule = TOO_SLOW
        reason = f"the search allowed {allowed_seconds:.0f} s, and it was still in phase {phase}"
    reason += _so_far(record)
    return dataclasses.replace(record, outcome=outcome, rule=rule, reason=reason)


def _so_far(record: TrialRecord) -> str:
    """What a trial had measured when it was ended, in brackets; empty if nothing."""
    said = []
    if seconds := record.steps.get("step_seconds"):
        said.append(f"{count(len(seconds), 'step')} done, the last in {duration(seconds[-1])}")
    if peak := gpu_memory(record.measurements):
        said.append(f"{memory(peak)} at most until then")
    return f" ({', '.join(said)})" if said else ""


def more_time(records: Iterable[TrialRecord], *, is_tune: bool) -> str:
    """The options with which three of the trials that were ended early are measured, with how long
    the shortest takes, by the steps that it has done; empty if none has done a step."""
    listed = list(records)
    record = min(filter(_whole_seconds, listed), key=_whole_seconds, default=None)
    if record is None:
        return ""
    seconds = _whole_seconds(record)
    options = "--resume"
    if record.rule == CloseReason.TIME_BUDGET:
        options += f" --time-budget {math.ceil((_START_SECONDS + _TRIALS * seconds) / 60)}m"
    if is_tune:
        # What was spent counts, and more than half of the rest is for the search.
        wanted = sum(own.slot_seconds for own in listed) + 2 * _TRIALS * seconds
        options += f" --gpu-minutes {math.ceil(wanted / 60)}"
    return f"one takes about {duration(seconds)} here, so {options} is time for {_TRIALS}"


def _whole_seconds(record: TrialRecord) -> float:
    """Slot time of all steps of a trial that ended after some of them; 0 if unknown."""
    done, steps = record.steps.get("step_seconds"), record.spec.measure.steps
    if record.outcome is not Outcome.SKIPPED or not done or steps is None:
        return 0.0
    left = record.spec.measure.warmup_steps + steps - len(done)
    return record.slot_seconds + max(0, left) * statistics.fmean(done[1:] or done)
