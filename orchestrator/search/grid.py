"""The exhaustive search: every planned trial once, in the order of the plan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Grid(Search):
    """A search that asks for every trial without a record."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        # A plain dict would get slower with each removal of its first key.
        self._pending: OrderedDict[str, TrialSpec] = OrderedDict()
        for trial in trials:
            self._pending[trial.trial_id] = trial

    def ask(self) -> TrialSpec | None:
        """The next trial of the plan; None at its end."""
        if not self._pending:
            return None
        return self._pending.popitem(last=False)[1]

    def tell(self, record: TrialRecord) -> None:
        """Take the record of a trial, so that it is not asked for again."""
        self._pending.pop(record.trial_id, None)

    @property
    def exhausted(self) -> bool:
        """Whether every trial was asked for or has a record."""
        return not self._pending

    def skipped(self) -> Iterable[TrialRecord]:
        """None: a grid skips nothing."""
        return ()

    def pending(self) -> Iterable[TrialSpec]:
        """The trials that were neither asked for nor recorded, in the order of the plan."""
        return tuple(self._pending.values())
