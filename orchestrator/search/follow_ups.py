"""Follow-ups: when a search has ended, a few more trials about its result. Today: each budget's pick under its cap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Choice, FollowUp, MemoryCap, TrialSpec
from orchestrator.results.columns import axis_columns
from orchestrator.results.ranking import Verdict, best_in_budgets
from orchestrator.results.rows import rows_of
from orchestrator.results.run import Run
from orchestrator.results.summary import Cohort, summarize
from orchestrator.results.turns import pairings
from orchestrator.results.verification import checks
from orchestrator.search.base import Search

MOST_FAILURES = 3
"""Picks of a budget that may fail under its cap before the budget is left as it is."""


class FollowUps(Search):
    """A search, and after it what its result makes worth another look; the search hears nothing of that.

    What to run follows from the records alone, so that a resumed sweep meets its own follow-ups again. Only where all
    records come from one environment: there a follow-up runs where the trial did that it follows.
    """

    def __init__(
        self,
        search: Search,
        *,
        budgets: Sequence[int],
        baseline: Mapping[str, Choice],
        verify: bool = True,
        turns: int = 0,
    ) -> None:
        self._search, self._verify, self._turns = search, verify, turns
        self._run = Run(budgets=tuple(budgets), baseline=baseline)
        self._records: dict[str, TrialRecord] = {}
        self._told: dict[str, TrialRecord] = {}
        self._asked: set[str] = set()
        self._out: set[str] = set()
        """Asked for and not yet told of: the search's trials, too."""
        self._ended: tuple[Cohort, ...] | None = None

    def ask(self) -> TrialSpec | None:
        if (spec := self._search.ask()) is None and (spec := next(self._wanted(), None)) is not None:
            self._asked.add(spec.trial_id)
        if spec is not None:
            self._out.add(spec.trial_id)
        return spec

    def tell(self, record: TrialRecord) -> None:
        trial_id = record.trial_id
        self._out.discard(trial_id)
        if record.spec.follow_up is None:
            self._records[trial_id] = record
            self._search.tell(record)
        elif trial_id in self._asked:
            self._told[trial_id] = record

    @property
    def exhausted(self) -> bool:
        return self._search.exhausted and not self._out and next(self._wanted(), None) is None

    def skipped(self) -> Iterable[TrialRecord]:
        return self._search.skipped()

    def unasked(self) -> Iterable[TrialSpec]:
        return [*self._search.unasked(), *self._wanted()]

    @property
    def account(self) -> Mapping[str, Any]:
        return self._search.account

    def _wanted(self) -> Iterator[TrialSpec]:
        """Follow-ups that what is known by now asks for, and that were not asked for yet; none during the search."""
        if not self._search.exhausted or self._out - self._asked:
            return
        told = list(self._told.values())
        rows = rows_of(told, axis_columns(told))
        for cohort in self._cohorts():
            known = (cohort.training, checks(rows), pairings(rows))
            for verdict in best_in_budgets(cohort.points, self._run.budgets, *known):
                compared = self._compared(verdict)
                yield from self._unasked(compared)
                if all(spec.trial_id in self._told for spec in compared):  # by now the pick is known
                    yield from self._unasked(self._verified(verdict, cohort))

    def _unasked(self, specs: Iterable[TrialSpec]) -> Iterator[TrialSpec]:
        return (spec for spec in specs if spec.trial_id not in self._asked)

    def _compared(self, verdict: Verdict) -> list[TrialSpec]:
        """All turns of a verdict's close candidates."""
        return in_turns([self._records[point.trial_ids[0]] for point in verdict.close], self._turns)

    def _verified(self, verdict: Verdict, cohort: Cohort) -> Iterator[TrialSpec]:
        """A verdict's picks under its cap, unless the device is no larger, or enough has failed."""
        if verdict.budget_bytes < cohort.device_bytes and len(verdict.failed) < MOST_FAILURES and self._verify:
            picks = (point for point in (verdict.best, verdict.other) if point is not None)
            yield from (under_cap(self._records[point.trial_ids[0]], verdict.budget_bytes) for point in picks)

    def _cohorts(self) -> tuple[Cohort, ...]:
        """The result of the search, which stays as it is from its end on."""
        if self._ended is None:
            records = [record for record in self._records.values() if record.environment]
            environments = [record.environment for record in records[:1]]
            alike = all(record.environment in environments for record in records)
            axes = axis_columns(records)
            rows = rows_of(records, axes) if alike and self._run.budgets else []
            found = {row["environment_id"]: environments[0] for row in rows[:1]}
            columns = {axis: column.name for axis, column in axes.items()}
            self._ended = summarize(rows, columns, self._run, found).cohorts
        return self._ended


def in_turns(records: Sequence[TrialRecord], turns: int) -> list[TrialSpec]:
    """Measured trials again, each so many times, there and back: A B B A ...; nothing to compare one with."""
    if len(records) < 2:
        return []
    among = tuple(record.trial_id for record in records)
    return [
        replace(record.spec, follow_up=FollowUp(follows=record.trial_id, purpose="comparison", among=among, turn=turn))
        for turn in range(turns)
        for record in (records if turn % 2 == 0 else reversed(records))
    ]


def under_cap(record: TrialRecord, budget_bytes: int) -> TrialSpec:
    """A measured trial again, on a device of so many bytes; what it took beside the allocator, it will take again."""
    used, reserved = (record.measurements.get(name) or 0 for name in ("device_used_bytes", "peak_reserved_bytes"))
    outside = max(0, used - reserved) if used and reserved else 0
    cap = MemoryCap(device_bytes=budget_bytes, outside_bytes=outside)
    follow_up = FollowUp(follows=record.trial_id, purpose="budget")
    return replace(record.spec, measure=replace(record.spec.measure, cap=cap), follow_up=follow_up)
