"""The search: finds the fastest configuration in each memory budget with few trials.

It always measures the candidate with the largest value per second of slot time: its own expected
gain, and what it shows about other candidates. It ends when the fastest unmeasured candidate is
expected to be faster by less than a given share.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jobs.record import TrialRecord, skipped
from jobs.spec import Choice, TrialSpec
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.search.base import Search
from orchestrator.search.best.budget_queries import BudgetQuery, Decisions, decide
from orchestrator.search.best.plan_state import PlanState
from orchestrator.search.best.skip_reasons import reason_of
from orchestrator.search.best.state import SearchState
from orchestrator.search.best.stopping_rule import StoppingRule
from orchestrator.search.model.arrays import Mask
from orchestrator.search.model.candidates import Candidate, candidates_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors, priors_for
from orchestrator.storage.search_summary import BudgetResult


class BestSearch(Search):
    """Finds the fastest configuration in each of the ``budgets``, in bytes; without any, in the
    GPU's memory. It ends when the fastest unmeasured one is expected to be faster by at most the
    share ``regret``, and says with the probability ``confidence`` how much faster it is at most.

    The search answers for the training recipe of the ``baseline``, with ``any_recipe`` also for all
    together, and with ``effective_batch`` only for this one. With ``accounts_for_plan`` off, the
    plan is a large space to choose from, and only measured trials get a record. ``slot_seconds``
    ends the search, and trials that take several times as long as expected.
    """

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        budgets: Sequence[int] = (),
        baseline: Mapping[str, Choice] | None = None,
        regret: float = 0.01,
        confidence: float = 0.95,
        any_recipe: bool = False,
        predicted_bytes: Mapping[str, float] | None = None,
        predicted_seconds: Mapping[str, float] | None = None,
        priors: TechniquePriors | None = None,
        accounts_for_plan: bool = True,
        effective_batch: int | None = None,
        slot_seconds: float = math.inf,
    ) -> None:
        self._candidates = candidates_of(trials)
        baseline = baseline or {}
        self._plan = PlanState(self._candidates, baseline)
        if predicted_bytes is None:
            predicted_bytes = {}
        if predicted_seconds is None:
            predicted_seconds = {}
        if priors is None:
            priors = priors_for(self._candidates)
        self._state = SearchState(self._candidates, predicted_bytes, priors, predicted_seconds)
        self._budgets = tuple(sorted(set(budgets)))
        self._slot_seconds = slot_seconds
        self._stopping_rule = StoppingRule(
            regret=regret, confidence=confidence, slot_seconds=slot_seconds
        )
        self._accounts_for_plan = accounts_for_plan
        self._effective_batch = effective_batch
        self._masks = _recipe_masks(self._candidates, baseline, any_recipe, effective_batch)
        self._allowed_seconds: dict[str, float] = {}
        """Trial id -> slot time that it may take, of the trials that were asked for."""
        self._decisions: Decisions | None = None
        """None: a record or a request has come since they were made."""

    def ask(self) -> TrialSpec | None:
        """The next trial: of the candidate with the largest value per second."""
        decisions = self._current_decisions()
        if decisions.next is None:
            return None
        trial = self._take(decisions.next)
        self._allowed_seconds[trial.trial_id] = decisions.allowed_seconds
        return trial

    def _take(self, index: int) -> TrialSpec:
        self._decisions = None
        return self._plan.take(index)

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """A better trial in place of one that has not started, by the latest records."""
        if not self.considers(spec):
            return spec
        self._plan.outstanding.discard(spec.trial_id)
        self._decisions = None
        return self.ask()

    def allowed_seconds(self, spec: TrialSpec) -> float:
        """A few times what is expected, because some techniques compile for minutes on some models
        only."""
        return self._allowed_seconds.get(spec.trial_id, math.inf)

    def tell(self, record: TrialRecord) -> None:
        """Learn from the first record of a trial; trials outside the plan are ignored."""
        if not self.considers(record.spec) or record.trial_id in self._plan.ended:
            return
        self._plan.outstanding.discard(record.trial_id)
        self._plan.ended.add(record.trial_id)
        self._decisions = None
        self._note(self._plan.candidate_of[record.trial_id], record)

    @property
    def exhausted(self) -> bool:
        return self._current_decisions().next is None and not self._plan.outstanding

    @property
    def overtime_seconds(self) -> float:
        return max(0.0, self._state.slot_seconds - self._slot_seconds)

    def extend(self, seconds: float) -> None:
        ends = max(self._slot_seconds, self._state.slot_seconds) + seconds
        if ends > self._stopping_rule.slot_seconds:
            self._stopping_rule = replace(self._stopping_rule, slot_seconds=ends)
            self._decisions = None

    def skipped(self) -> Iterable[TrialRecord]:
        if not self._accounts_for_plan:
            return []
        records = []
        for index, rule in self._current_decisions().skipped.items():
            reason = self._reason(index, rule)
            for trial in self._plan.open_trials([index]):
                records.append(skipped(trial, rule, reason))
        return records

    def pending(self) -> Iterable[TrialSpec]:
        if not self._accounts_for_plan:
            return []
        left_out = self._current_decisions().skipped
        return self._plan.open_trials(
            index for index in range(len(self._candidates)) if index not in left_out
        )

    def considers(self, spec: TrialSpec) -> bool:
        return spec.trial_id in self._plan.candidate_of

    def results(self) -> tuple[BudgetResult, ...]:
        """The current result for each budget: pick, runner-up, and the gain still possible."""
        return self._current_decisions().results

    def summary(self) -> Mapping[str, Any]:
        """Counts of trials and reasons, and the result for each budget."""
        rules: Counter[str] = Counter()
        for index, rule in self._current_decisions().skipped.items():
            rules[rule] += len(self._plan.open_trials([index]))
        return {
            "kind": "best",
            "planned": len(self._plan.candidate_of),
            "measured": len(self._plan.ended),
            "skipped": dict(rules.most_common()),
            "regret": self._stopping_rule.regret,
            "confidence": self._stopping_rule.confidence,
            "effective_batch": self._effective_batch,
            "results": [result.to_json() for result in self.results()],
        }

    def _note(self, index: int, record: TrialRecord) -> None:
        self._state.note(index, record)

    def _reason(self, index: int, rule: str) -> str:
        return reason_of(rule, self._stopping_rule.regret)

    def _current_decisions(self) -> Decisions:
        """The decisions by all records so far; computed once after every change."""
        if self._decisions is None:
            self._decisions = decide(self._state, self._plan, self._queries(), self._stopping_rule)
        return self._decisions

    def _queries(self) -> list[BudgetQuery]:
        device_bytes = self._state.device_bytes or math.inf
        queries = []
        for name, mask in self._masks.items():
            for budget in self._budgets or (device_bytes,):
                queries.append(BudgetQuery(budget, min(budget, device_bytes), name, mask))
        return queries


def _recipe_masks(
    candidates: Sequence[Candidate],
    baseline: Mapping[str, Choice],
    any_recipe: bool,
    effective_batch: int | None,
) -> dict[str, Mask]:
    """Recipe of a query ("" or "any") -> whether candidates can be its result, (candidates,)."""
    recipes = [candidate.training_recipe for candidate in candidates]
    listed = [(candidate.trials[0].choices, candidate.training_recipe) for candidate in candidates]
    recipe = ranked_recipe(listed, baseline)
    has_recipe = np.array([own == recipe for own in recipes], bool)
    may_answer = np.ones(len(candidates), bool)
    if effective_batch is not None:
        batches = [candidate.trials[0].effective_batch for candidate in candidates]
        may_answer = np.array(batches) == effective_batch
    masks = {"": has_recipe & may_answer}
    if any_recipe and not has_recipe.all():
        masks["any"] = may_answer
    return masks
