"""Several independent searches as one search: they are asked in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class RoundRobin(Search):
    """Asks the searches in turn: the one that gave a trial last is asked last.

    Each search gets every record, and ignores records of trials that are not its own.
    """

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = tuple(searches)
        self._queue = deque(searches)
        """The search to ask next is first."""

    def ask(self) -> TrialSpec | None:
        """The next trial of the first search that has one."""
        for search in self._queue:
            trial = search.ask()
            if trial is not None:
                # A search that gave a trial is asked last the next time.
                self._queue.remove(search)
                self._queue.append(search)
                return trial
        return None

    def tell(self, record: TrialRecord) -> None:
        """Pass the record on to every search."""
        for search in self._searches:
            search.tell(record)

    @property
    def exhausted(self) -> bool:
        """Whether every search is exhausted."""
        return all(search.exhausted for search in self._searches)

    def skipped(self) -> Iterable[TrialRecord]:
        """What any of the searches skipped."""
        records: list[TrialRecord] = []
        for search in self._searches:
            records += search.skipped()
        return records

    def pending(self) -> Iterable[TrialSpec]:
        """What any of the searches has pending."""
        trials: list[TrialSpec] = []
        for search in self._searches:
            trials += search.pending()
        return trials

    def considers(self, spec: TrialSpec) -> bool:
        """Whether any of the searches chooses from a space with the trial."""
        return any(search.considers(spec) for search in self._searches)
