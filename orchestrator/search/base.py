"""The interface of a search, and the exhaustive one."""

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import TrialSpec

TOO_SLOW = "too_slow"
"""Rule of a trial that was ended because it took longer than its search allowed."""


class Search(ABC):
    """Decides which trials run, and in which order, knowing neither Ray nor GPUs nor the time. At
    any moment every planned trial has exactly one state: outstanding (asked for, without a record
    yet), recorded, skipped, or pending. Equal records in equal order lead to equal trials. Asking
    for ``exhausted``, ``skipped``, ``pending`` and ``summary`` changes no later decision."""

    @abstractmethod
    def ask(self) -> TrialSpec | None:
        """The next trial to run, outstanding from now on; None if nothing is left to run, or if the
        search first needs the record of an outstanding trial."""

    @abstractmethod
    def tell(self, record: TrialRecord) -> None:
        """Take the record of a trial that is outstanding, or that an earlier run measured. Records
        of trials that the search does not know are ignored."""

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """What to run instead of ``spec``, an outstanding trial that has not started, by the
        records that have come since. The answer is ``spec`` itself, another trial, outstanding in
        its place, or None if nothing is worth running any more."""
        return spec

    def allowed_seconds(self, spec: TrialSpec) -> float:
        """Slot time that a trial may take before it is ended, and skipped with the rule
        ``TOO_SLOW``."""
        return math.inf

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """Whether ``ask`` will never return a trial again. Trials may still be outstanding."""

    @property
    def overtime_seconds(self) -> float:
        """Slot time that the search has taken beyond its own."""
        return 0.0

    def extend(self, seconds: float) -> None:
        """Let a search that has taken its own slot time take so much more; others need no time."""
        return

    def skipped(self) -> Iterable[TrialRecord]:
        """A record for each planned trial that the search decided not to run, with rule and reason.
        Until the search is exhausted a skipped trial may still become pending again."""
        return ()

    @abstractmethod
    def pending(self) -> Iterable[TrialSpec]:
        """The planned trials that are neither outstanding nor recorded nor skipped. There are none
        once the search is exhausted."""

    def considers(self, spec: TrialSpec) -> bool:
        """Whether the trial is one of a space that the search chooses from. ``pending`` does not
        list a space: a row is expected only of what was measured."""
        return False

    def summary(self) -> Mapping[str, Any]:
        """What the search did, as JSON values: ``kind``, ``planned``, ``measured`` (numbers of
        trials), ``skipped`` (rule -> trials); empty for a kind of search that never skips
        trials."""
        return {}


class Grid(Search):
    """A search that asks for every trial without a record, and skips none."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        # A plain dict would get slower with each removal of its first key.
        self._pending = OrderedDict((trial.trial_id, trial) for trial in trials)

    def ask(self) -> TrialSpec | None:
        if not self._pending:
            return None
        return self._pending.popitem(last=False)[1]

    def tell(self, record: TrialRecord) -> None:
        self._pending.pop(record.trial_id, None)

    @property
    def exhausted(self) -> bool:
        return not self._pending

    def pending(self) -> Iterable[TrialSpec]:
        """The trials that were neither asked for nor recorded, in the order of the plan."""
        return tuple(self._pending.values())
