"""The exhaustive search: every planned trial once, in the plan's order."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Grid(Search):
    """Asks for everything that it was not already told of."""

    def __init__(self, trials: Iterable[TrialSpec]) -> None:
        self._waiting = {trial.trial_id: trial for trial in trials}

    def ask(self) -> TrialSpec | None:
        if not self._waiting:
            return None
        return self._waiting.pop(next(iter(self._waiting)))

    def tell(self, record: TrialRecord) -> None:
        self._waiting.pop(record.trial_id, None)

    @property
    def exhausted(self) -> bool:
        return not self._waiting

    def skipped(self) -> Iterable[TrialRecord]:
        return ()

    def unasked(self) -> Iterable[TrialSpec]:
        return tuple(self._waiting.values())
