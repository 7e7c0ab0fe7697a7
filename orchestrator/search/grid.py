"""The exhaustive search: every planned trial once, in the order of the plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Grid(Search):
    """Asks for every trial that has no record yet."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        # An OrderedDict, because removing the first key of a plain dict takes time that grows with
        # every removal.
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

    def skipped(self) -> Iterable[TrialRecord]:
        return ()

    def pending(self) -> Iterable[TrialSpec]:
        return tuple(self._pending.values())
