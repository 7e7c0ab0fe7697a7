"""What a search is: asked for trials, told of records, and in the end accountable for what it left out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import TrialSpec


class Search(ABC):
    """Several trials may be out at once; a search that wants to see a record first answers None until it is told."""

    @abstractmethod
    def ask(self) -> TrialSpec | None:
        """The next trial to run; None when there is none, or none yet."""

    @abstractmethod
    def tell(self, record: TrialRecord) -> None:
        """A trial that was asked for, or was planned and measured in an earlier run, has ended."""

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """A trial that was asked for is about to begin: it is, or what is worth more by now, or nothing is any more."""
        return spec

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """Nothing will be asked for any more."""

    @abstractmethod
    def skipped(self) -> Iterable[TrialRecord]:
        """Planned trials that the search decided not to run, with rule and evidence."""

    @abstractmethod
    def unasked(self) -> Iterable[TrialSpec]:
        """Planned trials that were never asked for nor decided about: what is left when a sweep is cut short."""

    @property
    def account(self) -> Mapping[str, Any]:
        """What the search says of itself once it has ended, as JSON values; empty when it left nothing out.

        ``kind``, ``planned``, ``measured`` and ``skipped`` (rule -> trials); one that checks itself adds ``audit``.
        """
        return {}
