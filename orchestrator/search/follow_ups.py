"""Follow-ups: when a search has ended, a few more trials about its result, for a share of what it took."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Choice, FollowUp, MemoryCap, TrialSpec
from orchestrator.analysis.budgets import Verdict, best_in_budgets
from orchestrator.analysis.cap_checks import checks
from orchestrator.analysis.summary import Cohort, summarize
from orchestrator.analysis.tie_breaks import pairings
from orchestrator.planning.settings import FollowUpSpec
from orchestrator.search.base import Search
from orchestrator.storage.run_metadata import Run
from orchestrator.storage.tables.columns import axis_columns
from orchestrator.storage.tables.rows import rows_of

MOST_FAILURES = 3
"""Picks of a budget that may fail under its cap before the budget is left as it is."""


class FollowUps(Search):
    """A search, and after it what its result makes worth another look; the search hears nothing of that.

    What to run follows from the records alone, so that a resumed sweep meets its own follow-ups again. Only where all
    records come from one environment: there a follow-up runs where the trial did that it follows. All of them together
    take a share of the search's slot time at most; what that leaves out stays inferred.
    """

    def __init__(
        self,
        search: Search,
        wanted: FollowUpSpec,
        *,
        budgets: Sequence[int],
        baseline: Mapping[str, Choice],
    ) -> None:
        self._search, self._spec = search, wanted
        self._run = Run(budgets=tuple(budgets), baseline=baseline)
        self._records: dict[str, TrialRecord] = {}
        self._told: dict[str, TrialRecord] = {}
        self._charged: dict[str, float] = {}
        """Follow-ups asked for -> their slot time, at first what the followed trial took."""
        self._out: dict[str, TrialSpec] = {}
        """Asked for and not yet told of: the search's trials, too."""
        self._ended: tuple[Cohort, ...] | None = None

    def ask(self) -> TrialSpec | None:
        if (spec := self._search.ask()) is None and (
            spec := next(self._wanted(), None)
        ) is not None:
            self._charged[spec.trial_id] = self._price([spec])
        if spec is not None:
            self._out[spec.trial_id] = spec
        return spec

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        if spec.follow_up is not None:
            return spec
        del self._out[spec.trial_id]
        if (chosen := self._search.reconsider(spec)) is not None:
            self._out[chosen.trial_id] = chosen
        return chosen

    def tell(self, record: TrialRecord) -> None:
        trial_id = record.trial_id
        self._out.pop(trial_id, None)
        if record.spec.follow_up is None:
            self._records[trial_id] = record
            self._search.tell(record)
        elif trial_id in self._charged:
            self._told[trial_id] = record
            # Never less than expected: what once was too dear stays so, and a resumed sweep decides alike.
            self._charged[trial_id] = max(self._charged[trial_id], record.slot_seconds)

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
        if not self._search.exhausted or any(spec.follow_up is None for spec in self._out.values()):
            return
        seconds = self._allowance
        seconds -= sum(self._charged.values())
        for series, kept_back in self._in_order():
            missing = self._unasked(series)
            begun = len(missing) < len(series)
            if begun or self._price(missing) + kept_back <= seconds:
                seconds -= self._price(missing)
                yield from missing

    @property
    def _allowance(self) -> float:
        """Seconds of slot time for all follow-ups."""
        searched = sum(record.slot_seconds for record in self._records.values())
        return max(self._spec.least_seconds, self._spec.share * searched)

    def _in_order(self) -> Iterator[tuple[Sequence[TrialSpec], float]]:
        """What runs wholly or not at all, the worthiest first, and the seconds that it must leave for the rest."""
        told = list(self._told.values())
        rows = rows_of(told, axis_columns(told))
        for cohort in self._cohorts():
            known = (cohort.training, checks(rows), pairings(rows))
            budgets = self._run.budgets
            verdicts = best_in_budgets(cohort.points, budgets, *known) if budgets else ()
            verified = [self._verified(verdict, cohort) for verdict in verdicts]
            kept_back = self._price(self._unasked(itertools.chain.from_iterable(verified)))
            for verdict, picks in zip(verdicts, verified, strict=True):
                turns = self._compared(verdict)
                yield turns, kept_back
                if not self._awaits(turns):  # by now the pick is known
                    yield from (([spec], 0.0) for spec in picks)
            if all(spec.purpose == "anatomy" for spec in self._out.values()):
                yield from (([spec], 0.0) for spec in self._taken_apart(cohort, verdicts))

    def _unasked(self, specs: Iterable[TrialSpec]) -> list[TrialSpec]:
        return [spec for spec in specs if spec.trial_id not in self._charged]

    def _awaits(self, series: Iterable[TrialSpec]) -> bool:
        """Whether a series was begun and is not through."""
        return any(
            spec.trial_id in self._charged and spec.trial_id not in self._told for spec in series
        )

    def _price(self, specs: Iterable[TrialSpec]) -> float:
        """Slot time to be expected: what the followed trials took."""
        followed = (self._records[spec.follow_up.follows] for spec in specs if spec.follow_up)
        return sum(record.slot_seconds for record in followed)

    def _compared(self, verdict: Verdict) -> list[TrialSpec]:
        """All turns of a verdict's close candidates."""
        return in_turns(
            [self._records[point.trial_ids[0]] for point in verdict.close], self._spec.turns
        )

    def _verified(self, verdict: Verdict, cohort: Cohort) -> list[TrialSpec]:
        """A verdict's picks under its cap, unless the device is no larger, or enough has failed."""
        if (
            verdict.budget_bytes >= cohort.device_bytes
            or len(verdict.failed) >= MOST_FAILURES
            or not self._spec.verify
        ):
            return []
        picks = (point for point in (verdict.best, verdict.other) if point is not None)
        return [
            under_cap(self._records[point.trial_ids[0]], verdict.budget_bytes) for point in picks
        ]

    def _taken_apart(self, cohort: Cohort, verdicts: Sequence[Verdict]) -> list[TrialSpec]:
        """The budgets' picks, the frontier's ends, the rest of it; no more than asked for."""
        picks = [
            point
            for verdict in verdicts
            for point in (verdict.best, verdict.other)
            if point is not None
        ]
        worthiest = [*picks, *cohort.front[-1:], *cohort.front]
        first = dict.fromkeys(point.trial_ids[0] for point in worthiest)
        return [
            taken_apart(self._records[trial_id])
            for trial_id in itertools.islice(first, self._spec.anatomies)
        ]

    def _cohorts(self) -> tuple[Cohort, ...]:
        """The result of the search, which stays as it is from its end on."""
        if self._ended is None:
            records = [record for record in self._records.values() if record.environment]
            environments = [record.environment for record in records[:1]]
            alike = all(record.environment in environments for record in records)
            axes = axis_columns(records)
            rows = (
                rows_of(records, axes)
                if alike and (self._run.budgets or self._spec.anatomies)
                else []
            )
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
        replace(
            record.spec,
            follow_up=FollowUp(
                follows=record.trial_id, purpose="comparison", among=among, turn=turn
            ),
        )
        for turn in range(turns)
        for record in (records if turn % 2 == 0 else reversed(records))
    ]


def under_cap(record: TrialRecord, budget_bytes: int) -> TrialSpec:
    """A measured trial again, on a device of so many bytes; what it took beside the allocator, it will take again."""
    used, reserved = (
        record.measurements.get(name) or 0 for name in ("device_peak_bytes", "peak_reserved_bytes")
    )
    outside = max(0, used - reserved) if used and reserved else 0
    cap = MemoryCap(device_bytes=budget_bytes, outside_bytes=outside)
    follow_up = FollowUp(follows=record.trial_id, purpose="budget")
    return replace(record.spec, measure=replace(record.spec.measure, cap=cap), follow_up=follow_up)


def taken_apart(record: TrialRecord) -> TrialSpec:
    """A measured trial again, to see where its memory and time go: how fast it is, is known by now."""
    measure = replace(record.spec.measure, steps=1, anatomy=True)
    return replace(
        record.spec, measure=measure, follow_up=FollowUp(follows=record.trial_id, purpose="anatomy")
    )
