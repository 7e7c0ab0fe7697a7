"""Runs a search, and then a few more trials that check its result: the follow-ups."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.record import TrialRecord
from jobs.spec import Choice, Purpose, TrialSpec
from orchestrator.analysis.dataset import dataset_of_records
from orchestrator.planning.keys.config_model import FollowUpPolicy
from orchestrator.search.base import Search
from orchestrator.search.follow_up_plan import FollowUpPlan
from orchestrator.storage.run_metadata import RunMetadata

Series = Sequence[TrialSpec]
"""Follow-ups that run together or not at all."""
_SHARE_OF_FIRST_STEP = 0.5
"""A follow-up finds what its trial compiled in the compiler's cache. In 13 recorded follow-ups of
compiled trials, the first step took 0.18 to 0.49 of the time that it took before."""

_GRADIENTS_PRICE = 4.5
"""A comparison of gradients takes so many times its trial, because its reference is computed five
times in fp32: 18 s where the trial took 4, of a 1.2 B decoder on an H100, 2026-11-27."""


class FollowUps(Search):
    """A search, then its follow-ups: tie-breaks and cap checks of budgets, rounds for their gain,
    comparisons of gradients and profiles.

    Which follow-ups run depends only on the records, so a resumed sweep asks for the same ones.
    They run only if all records of the search are of one environment, within the policy's slot
    time. A budget for whose check there is no time keeps its inferred pick.
    """

    def __init__(
        self,
        search: Search,
        policy: FollowUpPolicy,
        *,
        budgets: Sequence[int],
        baseline: Mapping[str, Choice],
    ) -> None:
        self._search = search
        self._policy = policy
        self._run = RunMetadata(budgets=tuple(budgets), baseline=baseline)
        self._records: dict[str, TrialRecord] = {}
        """Trial id -> record, for the trials of the search."""
        self._follow_up_records: dict[str, TrialRecord] = {}
        self._charged_seconds: dict[str, float] = {}
        """Id of a follow-up that was asked for -> its slot time, expected until it has a record."""
        self._outstanding: dict[str, TrialSpec] = {}
        """Trials of the search and follow-ups that were asked for and have no record yet."""
        self._plan: FollowUpPlan | None = None
        """The plan from all records so far; outdated unless ``_is_plan_current``."""
        self._is_plan_current = False

    def ask(self) -> TrialSpec | None:
        """The next trial of the search, or after its end the next affordable follow-up."""
        self._lend()
        trial = self._search.ask()
        if trial is None:
            trial = next(self._affordable(self._current_plan()), None)
            if trial is not None:
                self._charged_seconds[trial.trial_id] = self._expected_seconds([trial])
        if trial is not None:
            self._outstanding[trial.trial_id] = trial
        return trial

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        if spec.follow_up is not None:
            return spec
        del self._outstanding[spec.trial_id]
        chosen = self._search.reconsider(spec)
        if chosen is not None:
            self._outstanding[chosen.trial_id] = chosen
        return chosen

    def allowed_seconds(self, spec: TrialSpec) -> float:
        if spec.follow_up is not None:
            return math.inf
        return self._search.allowed_seconds(spec)

    def tell(self, record: TrialRecord) -> None:
        """Take the record of a trial of the search, or of a follow-up, of an earlier run too."""
        trial_id = record.trial_id
        self._outstanding.pop(trial_id, None)
        self._is_plan_current = False
        if record.spec.follow_up is None:
            self._records[trial_id] = record
            self._search.tell(record)
        else:
            self._follow_up_records[trial_id] = record
            # Never charge less than the expected time, as long as a trial was asked for.
            expected = self._charged_seconds.get(trial_id, 0.0)
            self._charged_seconds[trial_id] = max(expected, record.slot_seconds)

    @property
    def exhausted(self) -> bool:
        self._lend()
        if not self._search.exhausted or self._outstanding:
            return False
        return next(self._affordable(self._current_plan()), None) is None

    def skipped(self) -> Iterable[TrialRecord]:
        return self._search.skipped()

    def pending(self) -> Iterable[TrialSpec]:
        return [*self._search.pending(), *self._affordable(self._current_plan())]

    def considers(self, spec: TrialSpec) -> bool:
        # Every follow-up that ended counts, also one that the search would not ask for any more:
        # its time was spent, and what it says of its trial is true.
        return spec.follow_up is not None or self._search.considers(spec)

    def summary(self) -> Mapping[str, Any]:
        return self._search.summary()

    def _lend(self) -> None:
        """Leave the search half of the time that none of the follow-ups of its picks needs: with
        the other half, a trial that changes a pick can be checked. A tie-break has what the search
        leaves, because it chooses among what is measured, and nearly as fast."""
        plan = self._current_plan()
        if not self._charged_seconds and plan is not None:
            alone = replace(plan, policy=plan.policy.model_copy(update={"tie_break_rounds": 0}))
            needed = self._expected_seconds(self._affordable(alone))
            self._search.extend((self._allowed_seconds() - needed) / 2)

    def _affordable(self, plan: FollowUpPlan | None) -> Iterator[TrialSpec]:
        """The follow-ups that were not asked for yet and fit the allowance, after the search."""
        if plan is None:
            return
        # Spend the rest of the allowance on one series after another. A series that has begun is
        # always finished.
        seconds = self._allowed_seconds() - sum(self._charged_seconds.values())
        for series, reserved_seconds in self._by_importance(plan):
            missing = self._not_asked_for(series)
            price = self._expected_seconds(missing)
            is_begun = len(missing) < len(series)
            if is_begun or price + reserved_seconds <= seconds:
                seconds -= price
                yield from missing

    def _by_importance(self, plan: FollowUpPlan) -> Iterator[tuple[Series, float]]:
        """Each series in its order, with the seconds that it must leave for later checks."""
        checks = [plan.cap_checks(pick) for pick in plan.picks]
        of_all_budgets = self._not_asked_for(itertools.chain.from_iterable(checks))
        seconds_of_checks = self._expected_seconds(of_all_budgets)
        for pick, cap_checks in zip(plan.picks, checks, strict=True):
            # A tie-break comes before the checks, because it can change the pick. It must leave
            # time for the checks of all budgets.
            tie_break = plan.tie_break(pick)
            yield tie_break, seconds_of_checks
            if not any(trial.trial_id in self._outstanding for trial in tie_break):
                for check in cap_checks:
                    yield [check], 0.0
        # Wait while a check is running: it may change a pick, and picks come first.
        last = (Purpose.GRADIENTS, Purpose.PROFILE)
        gains = [rounds for pick in plan.picks for rounds in plan.gain_rounds(pick)]
        of_gains = {trial.trial_id for trial in itertools.chain.from_iterable(gains)}
        running = self._outstanding.values()
        if all(own.purpose in last or own.trial_id in of_gains for own in running):
            # A wrong gradient changes the pick, so its comparison comes before what is said of it.
            yield from (([trial], 0.0) for trial in plan.gradient_checks())
            yield from ((rounds, 0.0) for rounds in gains)
            yield from (([trial], 0.0) for trial in plan.profiles())

    def _allowed_seconds(self) -> float:
        """The slot time in seconds that all follow-ups together may take."""
        searched = sum(record.slot_seconds for record in self._records.values())
        own = max(self._policy.min_seconds, self._policy.slot_share * searched)
        return own - self._search.overtime_seconds

    def _expected_seconds(self, trials: Iterable[TrialSpec]) -> float:
        """The expected slot time of follow-ups, by the trials that they follow."""
        return sum(
            _repeated_seconds(self._records[own.follow_up.follows_trial])
            * (_GRADIENTS_PRICE if own.measure.gradients else 1.0)
            for own in trials
            if own.follow_up is not None
        )

    def _not_asked_for(self, trials: Iterable[TrialSpec]) -> list[TrialSpec]:
        return [trial for trial in trials if trial.trial_id not in self._charged_seconds]

    def _current_plan(self) -> FollowUpPlan | None:
        """The plan from all records so far; None while the search runs, or if there is none."""
        # A follow-up waits for the last record of the search itself.
        is_searching = any(trial.follow_up is None for trial in self._outstanding.values())
        if is_searching or not self._search.exhausted:
            return None
        if not self._is_plan_current:
            self._plan = self._made_plan()
            self._is_plan_current = True
        return self._plan

    def _made_plan(self) -> FollowUpPlan | None:
        records = [record for record in self._records.values() if record.environment]
        if not records or not (self._run.budgets or self._policy.profiles):
            return None
        environment = records[0].environment
        if any(record.environment != environment for record in records):
            return None
        results = dataset_of_records([*records, *self._follow_up_records.values()], self._run).main
        if results is None:
            return None
        return FollowUpPlan(results=results, records=self._records, policy=self._policy)


def _repeated_seconds(record: TrialRecord) -> float:
    """The expected slot time of a trial that runs again on its machine."""
    if record.spec.choices.get("compile", "none") == "none":
        return record.slot_seconds
    first_step = record.measurements.get("first_step_seconds") or 0.0
    return record.slot_seconds - (1 - _SHARE_OF_FIRST_STEP) * first_step
