"""Which follow-ups the result of a search asks for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.analysis.budgets import BudgetPick
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.planning.settings import FollowUpPolicy
from orchestrator.search.follow_up_trials import profiled, tie_break, under_cap

MAX_FAILED_CHECKS = 3
"""Picks of a budget that may fail under its cap; after that the budget gets no further check."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetFollowUps:
    """The follow-ups of one budget."""

    tie_break: Sequence[TrialSpec]
    """All rounds between the fastest and its contenders."""
    cap_checks: Sequence[TrialSpec]
    """The picks under a cap. Which configuration is the pick depends on the tie-break."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUpPlan:
    """What the policy asks for, given the results of the search and of earlier follow-ups."""

    results: EnvironmentResults
    records: Mapping[str, TrialRecord]
    """Trial -> record, of the search."""
    policy: FollowUpPolicy

    def of_budgets(self) -> list[BudgetFollowUps]:
        """The follow-ups of each budget that the run names, smallest budget first."""
        return [
            BudgetFollowUps(
                tie_break=self._tie_break(pick),
                cap_checks=self._cap_checks(pick),
            )
            for pick in self._picks()
        ]

    def profiles(self) -> list[TrialSpec]:
        """Profiles of the budgets' picks, then of the front: its ends first."""
        wanted: list[Configuration] = []
        for pick in self._picks():
            wanted += _picked(pick)
        front = self.results.front
        wanted += [*front[-1:], *front]
        trial_ids = dict.fromkeys(own.trial_ids[0] for own in wanted)
        first = itertools.islice(trial_ids, self.policy.profiles)
        return [profiled(self.records[trial_id]) for trial_id in first]

    def _picks(self) -> Sequence[BudgetPick]:
        # Without budgets the results fall back to the sizes of common GPUs. Those are not worth
        # follow-ups.
        return self.results.budget_picks if self.results.run.budgets else ()

    def _tie_break(self, pick: BudgetPick) -> list[TrialSpec]:
        records = [self._record_of(contender) for contender in pick.contenders]
        return tie_break(records, self.policy.tie_break_rounds)

    def _cap_checks(self, pick: BudgetPick) -> list[TrialSpec]:
        """None where the GPU is no larger than the budget, or where enough checks have failed."""
        is_whole_device = pick.budget_bytes >= self.results.device_bytes
        has_failed_enough = len(pick.failed) >= MAX_FAILED_CHECKS
        if not self.policy.verify_budgets or is_whole_device or has_failed_enough:
            return []
        return [under_cap(self._record_of(own), pick.budget_bytes) for own in _picked(pick)]

    def _record_of(self, configuration: Configuration) -> TrialRecord:
        """The configuration's first repeat."""
        return self.records[configuration.trial_ids[0]]


def _picked(pick: BudgetPick) -> Iterator[Configuration]:
    """The pick, and the faster one of another training recipe."""
    for configuration in (pick.best, pick.other):
        if configuration is not None:
            yield configuration
