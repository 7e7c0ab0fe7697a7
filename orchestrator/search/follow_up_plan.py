"""Which follow-ups to run after a search: tie-breaks, checks and profiles, and their trials."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import FollowUp, MemoryCap, Purpose, TrialSpec
from orchestrator.analysis.budget_picks import BudgetPick
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.analysis.gradient_results import same_code
from orchestrator.analysis.recommendation.longest import length_of
from orchestrator.planning.keys.config_model import FollowUpPolicy

MAX_FAILED_CHECKS = 3
"""After this many that failed, a budget gets no further cap check, and no pick gets its gradients
compared."""


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
        # Without budgets the results have picks for common GPUs, which are not worth follow-ups.
        return self.results.budget_picks if self.results.run.budgets else ()

    def tie_break(self, pick: BudgetPick) -> list[TrialSpec]:
        """All rounds of trials that compare a budget's fastest configuration with close ones."""
        return tie_break(self._records_of(pick.contenders), self.policy.tie_break_rounds)

    def cap_checks(self, pick: BudgetPick) -> list[TrialSpec]:
        """Trials of a budget's picks under a memory cap, unless a smaller cap checks them; none if
        the budget is at least the GPU's memory."""
        if not self._is_checked(pick):
            return []
        smaller = (own for own in self.picks if own.budget_bytes < pick.budget_bytes)
        others = [each for own in smaller if self._is_checked(own) for each in own.configurations]
        wanted = [*pick.configurations, *self._longest(pick.budget_bytes)]
        checked = [own for own in wanted if own not in others]
        return [under_cap(record, pick.budget_bytes) for record in self._records_of(checked)]

    def _is_checked(self, pick: BudgetPick) -> bool:
        is_capped = pick.budget_bytes < self.results.device_bytes
        return self.policy.verify_budgets and is_capped and len(pick.failed) < MAX_FAILED_CHECKS

    def gain_rounds(self, pick: BudgetPick) -> list[list[TrialSpec]]:
        """For each of a budget's picks, all rounds of trials that compare it with the baseline;
        none unless rows are of unequal length and the baseline fits, too."""
        baseline = self.results.baseline
        own = next((each for each in self.results.configurations if each.choices == baseline), None)
        is_unequal = own is not None and own.row.get("longest_row_tokens") is not None
        if own is None or not is_unequal or own.memory_bytes > pick.budget_bytes:
            return []
        rounds = self.policy.gain_rounds
        return [tie_break(self._records_of([own, each]), rounds) for each in pick.configurations]

    def gradient_checks(self) -> list[TrialSpec]:
        """Trials that compare gradients, for budgets' picks with techniques not compared yet."""
        compared = self.results.gradient_results
        failed = [own for own in compared.values() if own.differs]
        if not self.policy.check_gradients or len(failed) >= MAX_FAILED_CHECKS:
            return []
        wanted = {
            same_code(own): own
            for pick in reversed(self.picks)
            for own in reversed(pick.configurations)
        }
        done = {
            same_code(own) for own in self.results.configurations if compared.keys() & own.trial_ids
        }
        missing = [own for code, own in reversed(wanted.items()) if code not in done]
        return [with_gradients(record) for record in self._records_of(missing)]

    def profiles(self) -> list[TrialSpec]:
        """Profiles of the budgets' picks, then of the front, starting with its fastest end."""
        picked = [own for pick in self.picks for own in pick.configurations]
        # The front is sorted from the least memory to the fastest. Its last item comes first.
        front = self.results.front
        records = self._records_of([*picked, *front[-1:], *front])
        # One counted step is enough: the speed is known.
        return [
            _repeated(record, Purpose.PROFILE, steps=1, profile=True)
            for record in records[: self.policy.profiles]
        ]

    def _longest(self, budget_bytes: int) -> Iterator[Configuration]:
        """The longest context in a budget, where the sweep varies the length."""
        lengths = {length_of(own.choices) for own in self.results.configurations}
        if len(lengths) > 1:
            yield from (own.configuration for own in self.results.longest(budget_bytes)[:1])

    def _records_of(self, configurations: Iterable[Configuration]) -> list[TrialRecord]:
        """The first repeat of each configuration, of one that is listed twice only once."""
        trial_ids = dict.fromkeys(own.trial_ids[0] for own in configurations)
        return [self.records[trial_id] for trial_id in trial_ids]


def tie_break(records: Sequence[TrialRecord], rounds: int) -> list[TrialSpec]:
    """Repeat close configurations in rounds whose order alternates: A B, B A, A B ... So a steady
    drift, such as a GPU that warms up, slows all configurations equally."""
    if len(records) < 2:
        return []
    # Every round has the same configurations. Odd rounds run them backwards.
    compared = tuple(record.trial_id for record in records)
    trials = []
    for number in range(rounds):
        for record in records[::-1] if number % 2 else records:
            follow_up = FollowUp(
                follows_trial=record.trial_id,
                purpose=Purpose.TIE_BREAK,
                compared_with=compared,
                round=number,
            )
            trials.append(replace(record.spec, follow_up=follow_up))
    return trials


def under_cap(record: TrialRecord, budget_bytes: int) -> TrialSpec:
    """Repeat a configuration with the memory of its GPU capped to a budget."""
    cap = MemoryCap(device_bytes=budget_bytes, non_allocator_bytes=_non_allocator_bytes(record))
    return _repeated(record, Purpose.CAP_CHECK, memory_cap=cap)


def _repeated(record: TrialRecord, purpose: Purpose, **measure: Any) -> TrialSpec:
    return replace(
        record.spec,
        measure=replace(record.spec.measure, **measure),
        follow_up=FollowUp(follows_trial=record.trial_id, purpose=purpose),
    )


def _non_allocator_bytes(record: TrialRecord) -> int:
    """Bytes outside PyTorch's allocator, such as those of the CUDA context; 0 if unknown."""
    used = record.measurements.get("device_peak_bytes")
    reserved = record.measurements.get("peak_reserved_bytes")
    return max(0, used - reserved) if used and reserved else 0


def with_gradients(record: TrialRecord) -> TrialSpec:
    """Repeat a configuration for one step, and compare its gradients with a reference."""
    alone = {"steps": 1, "profile": False, "evaluate_and_save": False, "gradients": True}
    spec = _repeated(record, Purpose.GRADIENTS, **alone)
    # The same code computes larger batches. Two rows show whether one reaches the other, two
    # micro-batches how they are weighted, and the reference takes each several times in fp32.
    few = {
        "per_device_train_batch_size": min(spec.micro_batch, 2),
        "gradient_accumulation_steps": min(spec.accumulation, 2),
    }
    arguments = {**spec.settings.training_arguments, **few}
    return replace(spec, settings=replace(spec.settings, training_arguments=arguments))


def compared_trials(spec: TrialSpec) -> tuple[str, ...]:
    """The trials that a round of a tie-break compares; empty for any other trial."""
    return () if spec.follow_up is None else spec.follow_up.compared_with
