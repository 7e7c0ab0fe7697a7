"""Decides which follow-ups to run after a search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jobs.record import TrialRecord
from jobs.spec import TrialSpec
from orchestrator.analysis.budget_picks import BudgetPick
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.analysis.recommendation.longest import length_of
from orchestrator.planning.config_model import FollowUpPolicy
from orchestrator.search.follow_up_trials import profiled, tie_break, under_cap

MAX_FAILED_CHECKS = 3
"""A budget gets no further check after this many of its picks failed under its cap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetFollowUps:
    """The follow-ups of one budget."""

    tie_break: Sequence[TrialSpec]
    """All rounds of trials that compare the fastest configuration with close ones."""
    cap_checks: Sequence[TrialSpec]
    """Trials of the picks under a memory cap. The tie-break can change the picks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUpPlan:
    """The follow-ups that the policy wants, given the results of search and earlier follow-ups."""

    results: EnvironmentResults
    records: Mapping[str, TrialRecord]
    """Trial id -> record, for the trials of the search."""
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
        """Profiles of the budgets' picks, then of the front, starting with its fastest end."""
        wanted: list[Configuration] = []
        for pick in self._picks():
            wanted += _picked(pick)
        # The front is sorted from the least memory to the fastest. Its last item comes first.
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
        """Trials of the budget's picks under a memory cap.

        There are none if the budget is at least the GPU's memory, or after too many failed checks.
        """
        is_whole_device = pick.budget_bytes >= self.results.device_bytes
        has_failed_enough = len(pick.failed) >= MAX_FAILED_CHECKS
        if not self.policy.verify_budgets or is_whole_device or has_failed_enough:
            return []
        checked = [*_picked(pick), *self._longest(pick.budget_bytes)]
        records = {configuration.trial_ids[0]: configuration for configuration in checked}
        return [under_cap(self.records[trial_id], pick.budget_bytes) for trial_id in records]

    def _longest(self, budget_bytes: int) -> Iterator[Configuration]:
        """The longest context in a budget, where the sweep varies the length."""
        contexts = self.results.longest(budget_bytes)
        lengths = {length_of(own.choices) for own in self.results.configurations}
        if contexts and len(lengths) > 1:
            yield contexts[0].configuration

    def _record_of(self, configuration: Configuration) -> TrialRecord:
        """The configuration's first repeat."""
        return self.records[configuration.trial_ids[0]]


def _picked(pick: BudgetPick) -> Iterator[Configuration]:
    """The pick, and a faster configuration of another training recipe if there is one."""
    for configuration in (pick.best, pick.other):
        if configuration is not None:
            yield configuration
