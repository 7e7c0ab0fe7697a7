"""Decides which follow-ups to run after a search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
class FollowUpPlan:
    """The follow-ups that the policy wants, given the results of search and earlier follow-ups."""

    results: EnvironmentResults
    records: Mapping[str, TrialRecord]
    """Trial id -> record, for the trials of the search."""
    policy: FollowUpPolicy

    @property
    def picks(self) -> Sequence[BudgetPick]:
        """The pick of each budget that the run names, smallest budget first."""
        # Without budgets the results fall back to the sizes of common GPUs. Those are not worth
        # follow-ups.
        if not self.results.run.budgets:
            return ()
        return self.results.budget_picks

    def tie_break(self, pick: BudgetPick) -> list[TrialSpec]:
        """All rounds of trials that compare a budget's fastest configuration with close ones."""
        return tie_break(self._records_of(pick.contenders), self.policy.tie_break_rounds)

    def cap_checks(self, pick: BudgetPick) -> list[TrialSpec]:
        """Trials of a budget's picks under a memory cap. A tie-break can change the picks.

        There are none if the budget is at least the GPU's memory, or after too many failed checks.
        """
        is_whole_device = pick.budget_bytes >= self.results.device_bytes
        has_failed_enough = len(pick.failed) >= MAX_FAILED_CHECKS
        if not self.policy.verify_budgets or is_whole_device or has_failed_enough:
            return []
        checked = [*_picked(pick), *self._longest(pick.budget_bytes)]
        return [under_cap(record, pick.budget_bytes) for record in self._records_of(checked)]

    def profiles(self) -> list[TrialSpec]:
        """Profiles of the budgets' picks, then of the front, starting with its fastest end."""
        wanted: list[Configuration] = []
        for pick in self.picks:
            wanted += _picked(pick)
        # The front is sorted from the least memory to the fastest. Its last item comes first.
        front = self.results.front
        wanted += [*front[-1:], *front]
        return [profiled(record) for record in self._records_of(wanted)[: self.policy.profiles]]

    def _longest(self, budget_bytes: int) -> Iterator[Configuration]:
        """The longest context in a budget, where the sweep varies the length."""
        contexts = self.results.longest(budget_bytes)
        lengths = {length_of(own.choices) for own in self.results.configurations}
        if contexts and len(lengths) > 1:
            yield contexts[0].configuration

    def _records_of(self, configurations: Iterable[Configuration]) -> list[TrialRecord]:
        """The first repeat of each configuration, of one that is listed twice only once."""
        trial_ids = dict.fromkeys(own.trial_ids[0] for own in configurations)
        return [self.records[trial_id] for trial_id in trial_ids]


def _picked(pick: BudgetPick) -> Iterator[Configuration]:
    """The pick, and a faster configuration of another training recipe if there is one."""
    for configuration in (pick.best, pick.other):
        if configuration is not None:
            yield configuration
