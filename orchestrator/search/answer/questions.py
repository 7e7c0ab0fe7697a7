"""What the answer search decides from what it has learnt: the next candidate, or to end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.answer import skip_reasons
from orchestrator.search.answer.budget_answer import BudgetAnswer, MeasuredPick
from orchestrator.search.answer.gain import (
    Beliefs,
    RemainingGain,
    expected_gains,
    fastest_of,
    probability_to_fit,
    remaining_gain,
)
from orchestrator.search.answer.state import AnswerState
from orchestrator.search.frontier.arrays import Array, Mask, rounded

_HARDLY_FITS = 0.05
"""A candidate that fits with less than this probability counts as ruled out."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What is fastest within a budget, among some of the candidates."""

    budget_bytes: float
    """As the user named it; infinite without a budget and a GPU."""
    within_bytes: float
    """The same, or the GPU's memory where that is less."""
    recipe: str
    candidates: Mask
    """Which candidates may answer, shape (candidates,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """When a question counts as answered."""

    regret: float
    """The share of the speed that may be left unfound,"""
    certainty: float
    """with this probability."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanView:
    """Which candidates can be asked for, and which are running."""

    is_open: Mask
    outstanding: Sequence[int]
    begun: Sequence[int]
    """Candidates of which some repeats ran: the others follow."""
    first_choices: Sequence[int]
    """Candidates in the order of their likeness to the baseline."""
    seconds_left: float = math.inf
    """Slot time that the search may still take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """What follows from everything known at a moment."""

    next: int | None
    is_worth: Mask
    """Whether an open candidate may still be asked for, shape (candidates,)."""
    rules: Sequence[str]
    """For every candidate, the rule by which it is not measured if it is not worth a trial."""
    answers: tuple[BudgetAnswer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Assessment:
    """A question, and what is left to gain in it."""

    answer: BudgetAnswer
    gains: Array
    """Expected gain of each candidate; zeros once the question is answered."""
    values: Array
    """What to measure each candidate is worth, in the same way."""
    fits: Array
    """Probability that each candidate fits, shape (candidates,)."""


def decide(
    state: AnswerState, questions: Sequence[Question], view: PlanView, wanted: Wanted
) -> Decisions:
    """The next candidate, and the answers so far. Equal knowledge leads to equal decisions."""
    count = len(state.candidates)
    if not count:
        return Decisions(next=None, is_worth=np.zeros(0, bool), rules=(), answers=())
    can_run = view.is_open & ~state.hopeless & ~state.too_large
    can_run[list(view.outstanding)] = False
    beliefs = state.beliefs()
    if beliefs is None:
        return _before_any_speed(state, questions, view, can_run, wanted)
    assessments = []
    for question in questions:
        assessments.append(_assess(state, beliefs, question, view, can_run, wanted))
    gains = np.sum([own.gains for own in assessments], axis=0)
    values = np.sum([own.values for own in assessments], axis=0)
    chosen = _begun(view, gains)
    seconds = state.seconds(beliefs)
    is_worth = (gains > 0) & can_run & (seconds <= view.seconds_left)
    if chosen is None and is_worth.any():
        if not (is_worth & (values > 0)).any():
            values = gains
        chosen = _most_per_second(values, seconds, is_worth & (values > 0))
    is_worth[list(view.begun)] = True
    rules = _rules(state, questions, [own.fits for own in assessments])
    rules[(gains > 0) & can_run & ~is_worth] = skip_reasons.OUT_OF_TIME
    return Decisions(
        next=chosen,
        is_worth=is_worth,
        rules=rules.tolist(),
        answers=tuple(own.answer for own in assessments),
    )


def _most_per_second(values: Array, seconds: Array, is_worth: Mask) -> int:
    """The candidate that is worth most for its slot time."""
    # Logarithms, rounded, so that rounding errors of another machine lead to the same trials.
    per_second = np.full(len(values), -math.inf)
    per_second[is_worth] = rounded(np.log(values[is_worth]) - np.log(seconds[is_worth]))
    return int(np.argmax(per_second))


def _begun(view: PlanView, gains: Array) -> int | None:
    """A candidate whose other repeats follow."""
    for index in view.begun:
        return index
    return None


def _before_any_speed(
    state: AnswerState,
    questions: Sequence[Question],
    view: PlanView,
    can_run: Mask,
    wanted: Wanted,
) -> Decisions:
    """The candidate most like the baseline comes first. One at a time, until a speed is known."""
    may_answer = np.any([own.candidates for own in questions], axis=0)
    is_worth = can_run & may_answer
    # The baseline is measured even where it cannot answer, such as at another effective batch.
    is_worth[list(view.first_choices[:1])] = can_run[list(view.first_choices[:1])]
    if view.seconds_left <= 0:
        is_worth[:] = False
    chosen = None
    if not view.outstanding:
        chosen = next((index for index in view.first_choices if is_worth[index]), None)
    certain = [np.ones(len(can_run)) for _ in questions]
    answers = []
    for question in questions:
        answers.append(_unknown(state, question, can_run, wanted))
    return Decisions(
        next=chosen,
        is_worth=is_worth,
        rules=_rules(state, questions, certain).tolist(),
        answers=tuple(answers),
    )


def _unknown(state: AnswerState, question: Question, can_run: Mask, wanted: Wanted) -> BudgetAnswer:
    """The answer before a speed is known: there is none."""
    return BudgetAnswer(
        budget_bytes=question.budget_bytes,
        recipe=question.recipe,
        pick=None,
        runner_up=None,
        considered=int(question.candidates.sum()),
        ruled_out=int((question.candidates & (state.hopeless | state.too_large)).sum()),
        measured=0,
        expected_gain=None,
        gain_at_most=None,
        certainty=wanted.certainty,
        is_answered=not (question.candidates & can_run).any(),
    )


def _assess(
    state: AnswerState,
    beliefs: Beliefs,
    question: Question,
    view: PlanView,
    can_run: Mask,
    wanted: Wanted,
) -> _Assessment:
    """What is known of one question, and which candidates could still improve its answer."""
    fits = probability_to_fit(beliefs, question.within_bytes)
    is_open = can_run & question.candidates
    # What runs now counts as if it had been measured as expected.
    rivals = [index for index in state.measured if question.candidates[index]]
    rivals += [index for index in view.outstanding if question.candidates[index]]
    incumbent = fastest_of(beliefs, rivals, question.within_bytes)
    gains = expected_gains(beliefs, incumbent, question.within_bytes, is_open)
    remaining = remaining_gain(
        beliefs,
        incumbent,
        question.within_bytes,
        gains,
        probability=wanted.certainty,
        seed=len(state.measured),
    )
    is_answered = _is_answered(remaining, incumbent, wanted)
    values = remaining.values
    if is_answered:
        gains = np.zeros(len(gains))
        values = np.zeros(len(gains))
    answer = _answer(state, beliefs, question, fits, remaining, wanted, is_answered=is_answered)
    return _Assessment(answer=answer, gains=gains, values=values, fits=fits)


def _is_answered(remaining: RemainingGain, incumbent: int | None, wanted: Wanted) -> bool:
    """Whether too little is left to gain, or hardly anything can fit."""
    if incumbent is None:
        return remaining.probability_any_fits <= 1 - wanted.certainty
    return remaining.at_most <= wanted.regret


def _answer(
    state: AnswerState,
    beliefs: Beliefs,
    question: Question,
    fits: Array,
    remaining: RemainingGain,
    wanted: Wanted,
    *,
    is_answered: bool,
) -> BudgetAnswer:
    """The question's answer by what was measured, not by what is believed."""
    measured = [index for index in state.measured if question.candidates[index]]
    pick = fastest_of(beliefs, measured, question.within_bytes)
    runner_up = None
    if pick is not None:
        curve = state.candidates[pick].curve
        others = [index for index in measured if state.candidates[index].curve != curve]
        runner_up = fastest_of(beliefs, others, question.within_bytes)
    ruled_out = state.hopeless | state.too_large | (fits < _HARDLY_FITS)
    ruled_out[measured] = False
    return BudgetAnswer(
        budget_bytes=question.budget_bytes,
        recipe=question.recipe,
        pick=_measured_pick(state, pick),
        runner_up=_measured_pick(state, runner_up),
        considered=int(question.candidates.sum()),
        ruled_out=int((ruled_out & question.candidates).sum()),
        measured=len(measured),
        expected_gain=_finite(remaining.expected),
        gain_at_most=_finite(remaining.at_most),
        certainty=wanted.certainty,
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
    """For every candidate, why it is not measured if it is not."""
    rules = np.full(len(state.candidates), skip_reasons.CANNOT_GAIN, dtype=object)
    for mask, rule in _masks(state, questions, fits):
        rules[mask] = rule
    return rules


def _masks(
    state: AnswerState, questions: Sequence[Question], fits: Sequence[Array]
) -> Iterator[tuple[Mask, str]]:
    """Rules and the candidates that they apply to; a later one counts more."""
    yield np.max(fits, axis=0) < _HARDLY_FITS, skip_reasons.DOES_NOT_FIT
    yield state.too_large, skip_reasons.TOO_LARGE
    yield state.hopeless, skip_reasons.DOES_NOT_RUN
    may_answer = np.any([own.candidates for own in questions], axis=0)
    yield ~may_answer, skip_reasons.OTHER_RECIPE
