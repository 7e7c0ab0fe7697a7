"""The decisions of the answer search: which candidate to measure next, or to end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.answer import skip_reasons
from orchestrator.search.answer.gain import (
    Beliefs,
    RemainingGain,
    expected_gains,
    fastest_of,
    most_per_second,
    probability_to_fit,
    remaining_gain,
)
from orchestrator.search.answer.state import AnswerState
from orchestrator.search.frontier.arrays import Array, Mask
from orchestrator.storage.search_summary import BudgetResult, MeasuredPick

_HARDLY_FITS = 0.05
"""A candidate that fits with less than this probability counts as ruled out."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A search for the fastest of some candidates within a budget."""

    budget_bytes: float
    """The budget that the user named; infinite if there is neither a budget nor a GPU."""
    within_bytes: float
    """The smaller of the budget and the GPU's memory."""
    recipe: str
    candidates: Mask
    """Which candidates can be the answer, shape (candidates,)."""

    @property
    def finite_bytes(self) -> int | None:
        """The budget in whole bytes; None if there is none."""
        if math.isinf(self.budget_bytes):
            return None
        return int(self.budget_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoppingRule:
    """When a question counts as answered."""

    regret: float
    """The fastest unmeasured candidate is expected to beat the pick by at most this share."""
    certainty: float
    """Probability of the upper bound of this gain, and that no candidate fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanView:
    """The state of the plan: the candidates that can be asked for, and those that are running."""

    is_open: Mask
    """Whether a candidate has a trial that was not asked for yet, shape (candidates,)."""
    outstanding: Sequence[int]
    """Candidates with a running trial."""
    partly_measured: Sequence[int]
    """Candidates with some repeats measured and some open. The open ones run next."""
    by_similarity: Sequence[int]
    """All candidates, those most similar to the baseline first."""
    seconds_left: float = math.inf
    """Slot time that the search may still take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """The decisions that follow from all records so far."""

    next: int | None
    """The candidate to measure now; None: none, or none before a running trial ends."""
    is_worth_measuring: Mask
    """Whether an open candidate may still be measured, shape (candidates,)."""
    rules: Sequence[str]
    """For every candidate, the rule that excludes it if it is not worth measuring."""
    answers: tuple[BudgetResult, ...]
    seconds: float = math.inf
    """Expected slot time of the next trial; infinite if it is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Assessment:
    """The state of one question: its answer so far, and the gains that are still possible."""

    answer: BudgetResult
    gains: Array
    """Expected gain of each candidate; zeros once the question is answered."""
    values: Array
    """Value of measuring each candidate; zeros once the question is answered."""
    fits: Array
    """Probability that each candidate fits, shape (candidates,)."""


def decide(
    state: AnswerState, questions: Sequence[Question], view: PlanView, stopping: StoppingRule
) -> Decisions:
    """The next candidate, and the answers so far. Deterministic: equal records, equal decisions."""
    if not len(state.candidates):
        return Decisions(next=None, is_worth_measuring=np.zeros(0, bool), rules=(), answers=())
    can_run = view.is_open & ~state.given_up & ~state.too_large
    # A candidate with a running trial waits for its result.
    can_run[list(view.outstanding)] = False
    beliefs = state.beliefs()
    if beliefs is None:
        return _before_any_speed(state, questions, view, can_run, stopping)
    can_run &= ~state.wait_for_a_twin(beliefs, can_run)
    assessments = []
    for question in questions:
        assessments.append(_assess(state, beliefs, question, view, can_run, stopping))
    return _decided(state, beliefs, questions, view, can_run, assessments)


def _decided(
    state: AnswerState,
    beliefs: Beliefs,
    questions: Sequence[Question],
    view: PlanView,
    can_run: Mask,
    assessments: Sequence[_Assessment],
) -> Decisions:
    """The candidate with the largest value per second for all questions together."""
    # One trial can improve several answers, so its gains add up.
    gains = np.sum([assessment.gains for assessment in assessments], axis=0)
    values = np.sum([assessment.values for assessment in assessments], axis=0)
    expected = state.seconds(beliefs)
    seconds = np.maximum(expected, state.late_seconds())
    can_gain = (gains > 0) & can_run
    is_worth_measuring = can_gain & (seconds <= view.seconds_left)
    chosen = next(iter(view.partly_measured), None)
    if chosen is None:
        chosen = most_per_second(values, gains, seconds, is_worth_measuring)
    is_worth_measuring[list(view.partly_measured)] = True
    rules = _rules(state, questions, [assessment.fits for assessment in assessments])
    rules[can_gain & ~is_worth_measuring] = skip_reasons.OUT_OF_TIME
    return Decisions(
        next=chosen,
        is_worth_measuring=is_worth_measuring,
        rules=rules.tolist(),
        answers=tuple(assessment.answer for assessment in assessments),
        seconds=math.inf if chosen is None else float(expected[chosen]),
    )


def _before_any_speed(
    state: AnswerState,
    questions: Sequence[Question],
    view: PlanView,
    can_run: Mask,
    stopping: StoppingRule,
) -> Decisions:
    """Before any speed is known: one candidate at a time, by similarity to the baseline."""
    may_answer = np.any([question.candidates for question in questions], axis=0)
    is_worth_measuring = can_run & may_answer
    # The baseline is measured even where it cannot answer, such as at another effective batch.
    is_worth_measuring[list(view.by_similarity[:1])] = can_run[list(view.by_similarity[:1])]
    if view.seconds_left <= 0:
        is_worth_measuring[:] = False
    chosen = None
    if not view.outstanding:
        chosen = next((index for index in view.by_similarity if is_worth_measuring[index]), None)
    certain = [np.ones(len(can_run)) for _ in questions]
    answers = [_unknown(state, question, can_run, stopping) for question in questions]
    return Decisions(
        next=chosen,
        is_worth_measuring=is_worth_measuring,
        rules=_rules(state, questions, certain).tolist(),
        answers=tuple(answers),
    )


def _unknown(
    state: AnswerState, question: Question, can_run: Mask, stopping: StoppingRule
) -> BudgetResult:
    """The answer before a speed is known: no pick, and unknown gains."""
    return BudgetResult(
        budget_bytes=question.finite_bytes,
        recipe=question.recipe,
        pick=None,
        considered=int(question.candidates.sum()),
        ruled_out=int((question.candidates & (state.given_up | state.too_large)).sum()),
        measured=0,
        expected_gain=None,
        gain_at_most=None,
        certainty=stopping.certainty,
        is_answered=not (question.candidates & can_run).any(),
    )


def _assess(
    state: AnswerState,
    beliefs: Beliefs,
    question: Question,
    view: PlanView,
    can_run: Mask,
    stopping: StoppingRule,
) -> _Assessment:
    """The answer to one question so far, and the gain that each candidate could still bring."""
    fits = probability_to_fit(beliefs, question.within_bytes)
    is_open = can_run & question.candidates
    # A running candidate counts as measured, with its expected speed.
    rivals = [index for index in state.measured if question.candidates[index]]
    rivals += [index for index in view.outstanding if question.candidates[index]]
    incumbent = fastest_of(beliefs, rivals, question.within_bytes)
    gains = expected_gains(beliefs, incumbent, question.within_bytes, is_open)
    remaining = remaining_gain(
        beliefs,
        incumbent,
        question.within_bytes,
        gains,
        probability=stopping.certainty,
        seed=len(state.measured),
    )
    is_answered = _is_answered(remaining, incumbent, stopping)
    values = remaining.values
    if is_answered:
        gains = np.zeros(len(gains))
        values = np.zeros(len(gains))
    answer = _answer(state, beliefs, question, fits, remaining, stopping, is_answered=is_answered)
    return _Assessment(answer=answer, gains=gains, values=values, fits=fits)


def _is_answered(remaining: RemainingGain, incumbent: int | None, stopping: StoppingRule) -> bool:
    """Whether the expected gain is below the regret, or surely no candidate fits."""
    if incumbent is None:
        return remaining.probability_any_fits <= 1 - stopping.certainty
    return remaining.expected <= stopping.regret


def _answer(
    state: AnswerState,
    beliefs: Beliefs,
    question: Question,
    fits: Array,
    remaining: RemainingGain,
    stopping: StoppingRule,
    *,
    is_answered: bool,
) -> BudgetResult:
    """The answer to the question, from measured candidates only."""
    measured = [index for index in state.measured if question.candidates[index]]
    pick = fastest_of(beliefs, measured, question.within_bytes)
    # Ruled out without a trial, so measured candidates are not among them.
    ruled_out = state.given_up | state.too_large | (fits < _HARDLY_FITS)
    ruled_out[measured] = False
    return BudgetResult(
        budget_bytes=question.finite_bytes,
        recipe=question.recipe,
        pick=_measured_pick(state, pick),
        considered=int(question.candidates.sum()),
        ruled_out=int((ruled_out & question.candidates).sum()),
        measured=len(measured),
        expected_gain=_finite(remaining.expected),
        gain_at_most=_finite(remaining.at_most),
        certainty=stopping.certainty,
        is_answered=is_answered,
    )


def _measured_pick(state: AnswerState, index: int | None) -> MeasuredPick | None:
    if index is None:
        return None
    measurement = state.measured[index]
    return MeasuredPick(
        trial_id=measurement.trial_id,
        samples_per_second=measurement.samples_per_second,
        memory_bytes=measurement.memory_bytes,
    )


def _finite(figure: float) -> float | None:
    if math.isfinite(figure):
        return figure
    return None


def _rules(
    state: AnswerState, questions: Sequence[Question], fits: Sequence[Array]
) -> NDArray[np.object_]:
    """For every candidate, the rule that excludes it if it is not measured."""
    rules = np.full(len(state.candidates), skip_reasons.CANNOT_GAIN, dtype=object)
    for mask, rule in _masks(state, questions, fits):
        rules[mask] = rule
    return rules


def _masks(
    state: AnswerState, questions: Sequence[Question], fits: Sequence[Array]
) -> Iterator[tuple[Mask, str]]:
    """Pairs of candidates and the rule that excludes them; a later rule replaces an earlier one."""
    # The largest probability over all questions: a candidate may fit another budget.
    yield np.max(fits, axis=0) < _HARDLY_FITS, skip_reasons.DOES_NOT_FIT
    yield state.too_large, skip_reasons.TOO_LARGE
    yield state.given_up, skip_reasons.DOES_NOT_RUN
    may_answer = np.any([question.candidates for question in questions], axis=0)
    yield ~may_answer, skip_reasons.OTHER_RECIPE
