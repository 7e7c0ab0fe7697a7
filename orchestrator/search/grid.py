"""The exhaustive search: every planned trial once, in the plan's order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Grid(Search):
    """Asks for everything that it was not already told of."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        # A plain dict looks past everything that was ever taken from its front.
        self._waiting = OrderedDict((trial.trial_id, trial) for trial in trials)

    def ask(self) -> TrialSpec | None:
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def tell(self, record: TrialRecord) -> None:
        self._waiting.pop(record.trial_id, None)

    @property
    def exhausted(self) -> bool:
        return not self._waiting

    def skipped(self) -> Iterable[TrialRecord]:
        return ()

    def unasked(self) -> Iterable[TrialSpec]:
        return tuple(self._waiting.values())
