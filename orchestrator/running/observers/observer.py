"""Observers of a session: the base of everything that watches a sweep's trials."""

from __future__ import annotations

from jobs.record import TrialRecord
from jobs.spec import TrialSpec


class Observer:
    """Terminal progress, ``log.jsonl``, Prometheus metrics and experiment loggers.

    Each overrides the methods that it needs. None may raise an exception. Otherwise a log on a
    full disk would end the sweep.
    """

    def started(self, spec: TrialSpec) -> None:
        """A slot has begun a trial. A trial that lost its slot is begun again."""

    def ended(self, record: TrialRecord, *, measured: bool) -> None:
        """A trial has its record.

        ``measured``: it ran in this session. Otherwise the record was kept from an earlier run, or
        says why the trial did not run.
        """

    def message(self, text: str) -> None:
        """A sentence about the sweep that its user should know."""

    def closed(self) -> None:
        """The session has ended; nothing more comes."""
