"""Several independent searches as one: they are asked in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class RoundRobin(Search):
    """The search that was asked longest ago comes first.

    Each is told every record, and knows its own trials.
    """

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = tuple(searches)
        self._queue = deque(searches)
        """The next to be asked is first."""

    def ask(self) -> TrialSpec | None:
        for search in self._queue:
            trial = search.ask()
            if trial is not None:
                self._queue.remove(search)
                self._queue.append(search)
                return trial
        return None

    def tell(self, record: TrialRecord) -> None:
        for search in self._searches:
            search.tell(record)

    @property
    def exhausted(self) -> bool:
        return all(search.exhausted for search in self._searches)

    def skipped(self) -> Iterable[TrialRecord]:
        return [record for search in self._searches for record in search.skipped()]

    def pending(self) -> Iterable[TrialSpec]:
        return [trial for search in self._searches for trial in search.pending()]
