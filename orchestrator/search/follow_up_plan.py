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
"""A budget gets no further check after this many of its picks failed under its cap."""


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
        follow_ups = []
        for pick in self._picks():
            budget = BudgetFollowUps(
                tie_break=self._tie_break(pick), cap_checks=self._cap_checks(pick)
            )
            follow_ups.append(budget)
        return follow_ups

    def profiles(self) -> list[TrialSpec]:
        """Profiles of the budgets' picks, then of the front: its ends first."""
        wanted: list[Configuration] = []
        for pick in self._picks():
            wanted += _picked(pick)
        # The front rises from its leanest end; its fastest end comes before the middle.
        front = self.results.front
        wanted += [*front[-1:], *front]
        # A configuration may be wanted twice. A dict keeps the first of each, in order.
        trial_ids = dict.fromkeys(configuration.trial_ids[0] for configuration in wanted)
        first = itertools.islice(trial_ids, self.policy.profiles)
        return [profiled(self.records[trial_id]) for trial_id in first]

    def _picks(self) -> Sequence[BudgetPick]:
        # Without budgets the results fall back to the sizes of common GPUs. Those are not worth
        # follow-ups.
        if not self.results.run.budgets:
            return ()
        return self.results.budget_picks

    def _tie_break(self, pick: BudgetPick) -> list[TrialSpec]:
        records = [self._record_of(contender) for contender in pick.contenders]
        return tie_break(records, self.policy.tie_break_rounds)

    def _cap_checks(self, pick: BudgetPick) -> list[TrialSpec]:
        """None if the GPU is no larger than the budget, or if enough checks have failed."""
        is_whole_device = pick.budget_bytes >= self.results.device_bytes
        has_failed_enough = len(pick.failed) >= MAX_FAILED_CHECKS
        if not self.policy.verify_budgets or is_whole_device or has_failed_enough:
            return []
        records = map(self._record_of, _picked(pick))
        return [under_cap(record, pick.budget_bytes) for record in records]

    def _record_of(self, configuration: Configuration) -> TrialRecord:
        """The configuration's first repeat."""
        return self.records[configuration.trial_ids[0]]


def _picked(pick: BudgetPick) -> Iterator[Configuration]:
    """The pick, and the faster one of another training recipe."""
    for configuration in (pick.best, pick.other):
        if configuration is not None:
            yield configuration
