"""The answer search: the fastest configuration in each memory budget, from as few trials as it can.

It measures next what is expected to gain most per second, and ends when what it has not measured
can hardly gain anything more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jobs.record import TrialRecord, skipped
from jobs.spec import Choice, TrialSpec
from orchestrator.analysis.baseline import ranked_recipe
from orchestrator.search.answer.budget_answer import BudgetAnswer
from orchestrator.search.answer.questions import (
    Decisions,
    PlanView,
    Question,
    Wanted,
    decide,
)
from orchestrator.search.answer.skip_reasons import reason_of
from orchestrator.search.answer.state import AnswerState
from orchestrator.search.answer.technique_priors import TechniquePriors, shipped_priors
from orchestrator.search.base import Search
from orchestrator.search.frontier.arrays import Mask
from orchestrator.search.frontier.candidates import Candidate, candidates_of
from orchestrator.search.frontier.plan_state import PlanState


class AnswerSearch(Search):
    """Answers "what is fastest in this memory" for each budget, in bytes.

    Without budgets the GPU's own memory is the only one. ``regret`` is the share of the speed that
    may be left unfound, and ``certainty`` the probability with which no more is left. Only the
    training recipe of the ``baseline`` is answered for; with ``any_recipe`` all recipes together
    are a second question. ``predicted_bytes`` maps trials to predicted memory, and may grow.

    With ``accounts_for_plan`` off, trials that were not measured are not listed one by one: the
    plan is a space to choose from, of which no row is expected. Only configurations of
    ``effective_batch`` answer, if it is given. The search ends when its trials have taken
    ``slot_seconds``, and begins none that is expected to take more.
    """

    def __init__(
        self,
        trials: Iterable[TrialSpec],
        *,
        budgets: Sequence[int] = (),
        baseline: Mapping[str, Choice] | None = None,
        regret: float = 0.01,
        certainty: float = 0.95,
        any_recipe: bool = False,
        predicted_bytes: Mapping[str, float] | None = None,
        priors: TechniquePriors | None = None,
        accounts_for_plan: bool = True,
        effective_batch: int | None = None,
        slot_seconds: float = math.inf,
    ) -> None:
        if predicted_bytes is None:
            predicted_bytes = {}
        self._candidates = candidates_of(trials)
        if priors is None:
            priors = _priors_of(self._candidates)
        self._plan = PlanState(self._candidates)
        self._index = {own: index for index, own in enumerate(self._candidates)}
        self._state = AnswerState(self._candidates, predicted_bytes, priors)
        self._budgets = tuple(sorted(set(budgets)))
        self._wanted = Wanted(regret=regret, certainty=certainty)
        self._accounts_for_plan = accounts_for_plan
        self._baseline = dict(baseline or {})
        self._masks = self._recipe_masks(any_recipe=any_recipe, effective_batch=effective_batch)
        self._slot_seconds = slot_seconds
        self._effective_batch = effective_batch
        self._first_choices = self._by_likeness()
        self._decisions: Decisions | None = None
        """None after news."""

    def ask(self) -> TrialSpec | None:
        """The next trial: of the candidate with the largest expected gain per second."""
        chosen = self._current_decisions().next
        if chosen is None:
            return None
        trial = self._plan.open_trials(self._candidates[chosen])[0]
        self._plan.take(trial.trial_id)
        self._decisions = None
        return trial

    def reconsider(self, spec: TrialSpec) -> TrialSpec | None:
        """What the latest records let expect more of."""
        if self._plan.candidate_of(spec.trial_id) is None:
            return spec
        self._plan.give_back(spec.trial_id)
        self._decisions = None
        return self.ask()

    def tell(self, record: TrialRecord) -> None:
        """Learn from a trial of the plan, the first time that it has a record."""
        candidate = self._plan.candidate_of(record.trial_id)
        if candidate is None or not self._plan.end(record.trial_id):
            return
        self._decisions = None
        self._state.note(self._index[candidate], record)

    @property
    def exhausted(self) -> bool:
        """Whether all budgets are answered, and no trial is outstanding."""
        return self._current_decisions().next is None and not self._plan.has_outstanding_trials

    def skipped(self) -> Iterable[TrialRecord]:
        """The open trials of candidates that are not worth measuring, as it is known now."""
        if not self._accounts_for_plan:
            return []
        records = []
        for index, rule in self._rules().items():
            reason = reason_of(rule, self._wanted.regret, self._wanted.certainty)
            for trial in self._plan.open_trials(self._candidates[index]):
                records.append(skipped(trial, rule, reason))
        return records

    def pending(self) -> Iterable[TrialSpec]:
        """The open trials that may still be asked for."""
        if not self._accounts_for_plan:
            return []
        rules = self._rules()
        kept = [own for index, own in enumerate(self._candidates) if index not in rules]
        return self._plan.open_trials_of(kept)

    def considers(self, spec: TrialSpec) -> bool:
        """Whether a trial is one of the plan."""
        return self._plan.candidate_of(spec.trial_id) is not None

    def answers(self) -> tuple[BudgetAnswer, ...]:
        """What is known of each budget now: pick, runner-up, and what could still be gained."""
        return self._current_decisions().answers

    def summary(self) -> Mapping[str, Any]:
        """Counts of trials and reasons, and the answer for each budget."""
        rules: Counter[str] = Counter()
        for index, rule in self._rules().items():
            rules[rule] += len(self._plan.open_trials(self._candidates[index]))
        return {
            "kind": "answer",
            "planned": self._plan.trial_count,
            "measured": self._plan.ended_count,
            "skipped": dict(rules.most_common()),
            "regret": self._wanted.regret,
            "certainty": self._wanted.certainty,
            "effective_batch": self._effective_batch,
            "answers": [answer.to_json() for answer in self.answers()],
        }

    def _recipe_masks(self, *, any_recipe: bool, effective_batch: int | None) -> dict[str, Mask]:
        """Name of a question -> which candidates may answer it, shape (candidates,)."""
        if not self._candidates:
            return {}
        listed = [(own.trials[0].choices, own.training_recipe) for own in self._candidates]
        recipe = ranked_recipe(listed, self._baseline)
        is_own = np.array([own.training_recipe == recipe for own in self._candidates])
        may_answer = np.ones(len(is_own), bool)
        if effective_batch is not None:
            batches = [own.trials[0].effective_batch for own in self._candidates]
            may_answer = np.array(batches) == effective_batch
        masks = {"": is_own & may_answer}
        if any_recipe and not is_own.all():
            masks["any"] = may_answer
        return masks

    def _rules(self) -> dict[int, str]:
        """Open candidate -> the rule by which it is not measured; those that may be have none."""
        decisions = self._current_decisions()
        rules = {}
        for index, candidate in enumerate(self._candidates):
            if self._plan.is_open(candidate) and not decisions.is_worth[index]:
                rules[index] = decisions.rules[index]
        return rules

    def _current_decisions(self) -> Decisions:
        """Made once after every news."""
        if self._decisions is None:
            view = PlanView(
                is_open=np.array([self._plan.is_open(own) for own in self._candidates], bool),
                outstanding=[self._index[own] for own in self._plan.outstanding_candidates()],
                begun=self._begun(),
                first_choices=self._first_choices,
                seconds_left=self._slot_seconds - self._state.slot_seconds,
            )
            self._decisions = decide(self._state, self._questions(), view, self._wanted)
        return self._decisions

    def _questions(self) -> list[Question]:
        """A budget of each recipe mask; without budgets the GPU's own memory."""
        device_bytes = self._state.device_bytes or math.inf
        questions = []
        for name, mask in self._masks.items():
            for budget in self._budgets or (device_bytes,):
                questions.append(Question(budget, min(budget, device_bytes), name, mask))
        return questions

    def _begun(self) -> list[int]:
        """Candidates with repeats of which some ran ok: the others follow."""
        begun = []
        for index in self._state.measured:
            candidate = self._candidates[index]
            if len(candidate.trials) > 1 and self._plan.is_open(candidate):
                begun.append(index)
        return begun

    def _by_likeness(self) -> list[int]:
        """All candidates, those with most choices of the baseline first, then the smallest."""
        keys = []
        for index, candidate in enumerate(self._candidates):
            choices = candidate.trials[0].choices
            equal = sum(choices.get(axis) == value for axis, value in self._baseline.items())
            keys.append((-equal, candidate.micro_batch, index))
        return [index for _, _, index in sorted(keys)]


def _priors_of(candidates: Sequence[Candidate]) -> TechniquePriors:
    """The shipped priors. Without a GPU, only what techniques take besides their steps."""
    if candidates and candidates[0].trials[0].needs.gpus == 0:
        return shipped_priors().overheads_alone()
    return shipped_priors()
