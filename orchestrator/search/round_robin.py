"""Several searches side by side as one: each is asked in turn and told of everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.search.base import Search


class Together(Search):
    """For searches that know their own trials; the one asked longest ago comes first."""

    def __init__(self, searches: Sequence[Search]) -> None:
        self._searches = tuple(searches)
        self._turns = list(searches)

    def ask(self) -> TrialSpec | None:
        for search in self._turns:
            if (spec := search.ask()) is not None:
                self._turns.remove(search)
                self._turns.append(search)
                return spec
        return None

    def tell(self, record: TrialRecord) -> None:
        for search in self._searches:
            search.tell(record)

    @property
    def exhausted(self) -> bool:
        return all(search.exhausted for search in self._searches)

    def skipped(self) -> Iterable[TrialRecord]:
        return [record for search in self._searches for record in search.skipped()]

    def unasked(self) -> Iterable[TrialSpec]:
        return [spec for search in self._searches for spec in search.unasked()]
