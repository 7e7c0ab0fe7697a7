"""Several independent searches as one search: they are asked in turn."""

from collections import deque
from collections.abc import Iterable

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search, SeveralSearches


class RoundRobin(SeveralSearches):
    """Asks the searches in turn: the one that gave a trial last is asked last.

    Each search gets every record, and ignores records of trials that are not its own.
    """

    def __init__(self, searches: Iterable[Search]) -> None:
        super().__init__(searches)
        self._queue = deque(self._all)
        """The search to ask next is first."""

    def ask(self) -> TrialSpec | None:
        for search in self._queue:
            trial = search.ask()
            if trial is not None:
                self._queue.remove(search)
                self._queue.append(search)
                return trial
        return None

    def tell(self, record: TrialRecord) -> None:
        for search in self._all:
            search.tell(record)
