"""The decisions of the search: which candidate to measure next, or to end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.best import skip_reasons
from orchestrator.search.best.gain import (
    Posterior,
    RemainingGain,
    expected_gains,
    fastest_of,
    most_per_second,
    probability_to_fit,
    remaining_gain,
)
from orchestrator.search.best.state import SearchState
from orchestrator.search.model.arrays import Array, Mask
from orchestrator.storage.search_summary import BudgetResult, MeasuredPick

_HARDLY_FITS = 0.05
"""A candidate that fits with less than this probability counts as ruled out."""


@dataclass(frozen=True, slots=True, eq=False)
class BudgetQuery:
    """A search for the fastest of some candidates within a budget."""

    budget_bytes: float
    """The budget that the user named; infinite if there is neither a budget nor a GPU."""
    within_bytes: float
    """The smaller of the budget and the GPU's memory."""
    recipe: str
    candidates: Mask
    """Which candidates can be the result, shape (candidates,)."""

    @property
    def finite_bytes(self) -> int | None:
        """The budget in whole bytes; None if there is none."""
        if math.isinf(self.budget_bytes):
            return None
        return int(self.budget_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoppingRule:
    """When a query counts as settled."""

    regret: float
    """The fastest unmeasured candidate is expected to beat the pick by at most this share."""
    confidence: float
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
    results: tuple[BudgetResult, ...]
    seconds: float = math.inf
    """Expected slot time of the next trial; infinite if it is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Assessment:
    """The state of one query: its result so far, and the gains that are still possible."""

    result: BudgetResult
    gains: Array
    """Expected gain of each candidate; zeros once the query is settled."""
    values: Array
    """Value of measuring each candidate; zeros once the query is settled."""
    fits: Array
    """Probability that each candidate fits, shape (candidates,)."""


def decide(
    state: SearchState, queries: Sequence[BudgetQuery], view: PlanView, stopping: StoppingRule
) -> Decisions:
    """The next candidate, and the results so far. Deterministic: equal records, equal decisions."""
    if not len(state.candidates):
        return Decisions(next=None, is_worth_measuring=np.zeros(0, bool), rules=(), results=())
    can_run = view.is_open & ~state.given_up & ~state.too_large
    # A candidate with a running trial waits for its result.
    can_run[list(view.outstanding)] = False
    posterior = state.posterior()
    if posterior is None:
        return _before_any_speed(state, queries, view, can_run, stopping)
    can_run &= ~state.wait_for_a_twin(posterior, can_run)
    assessments = []
    for query in queries:
        assessments.append(_assess(state, posterior, query, view, can_run, stopping))
    return _decided(state, posterior, queries, view, can_run, assessments)


def _decided(
    state: SearchState,
    posterior: Posterior,
    queries: Sequence[BudgetQuery],
    view: PlanView,
    can_run: Mask,
    assessments: Sequence[_Assessment],
) -> Decisions:
    """The candidate with the largest value per second for all queries together."""
    # One trial can improve several results, so its gains add up.
    gains = np.sum([assessment.gains for assessment in assessments], axis=0)
    values = np.sum([assessment.values for assessment in assessments], axis=0)
    expected = state.seconds(posterior)
    seconds = np.maximum(expected, state.late_seconds())
    can_gain = (gains > 0) & can_run
    is_worth_measuring = can_gain & (seconds <= view.seconds_left)
    chosen = next(iter(view.partly_measured), None)
    if chosen is None:
        chosen = most_per_second(values, gains, seconds, is_worth_measuring)
    is_worth_measuring[list(view.partly_measured)] = True
    rules = _rules(state, queries, [assessment.fits for assessment in assessments])
    rules[can_gain & ~is_worth_measuring] = skip_reasons.OUT_OF_TIME
    return Decisions(
        next=chosen,
        is_worth_measuring=is_worth_measuring,
        rules=rules.tolist(),
        results=tuple(assessment.result for assessment in assessments),
        seconds=math.inf if chosen is None else float(expected[chosen]),
    )


def _before_any_speed(
    state: SearchState,
    queries: Sequence[BudgetQuery],
    view: PlanView,
    can_run: Mask,
    stopping: StoppingRule,
) -> Decisions:
    """Before any speed is known: one candidate at a time, by similarity to the baseline."""
    may_answer = np.any([query.candidates for query in queries], axis=0)
    is_worth_measuring = can_run & may_answer
    # The baseline is measured even where it cannot result, such as at another effective batch.
    is_worth_measuring[list(view.by_similarity[:1])] = can_run[list(view.by_similarity[:1])]
    if view.seconds_left <= 0:
        is_worth_measuring[:] = False
    chosen = None
    if not view.outstanding:
        chosen = next((index for index in view.by_similarity if is_worth_measuring[index]), None)
    certain = [np.ones(len(can_run)) for _ in queries]
    results = [_unknown(state, query, can_run, stopping) for query in queries]
    return Decisions(
        next=chosen,
        is_worth_measuring=is_worth_measuring,
        rules=_rules(state, queries, certain).tolist(),
        results=tuple(results),
    )


def _unknown(
    state: SearchState, query: BudgetQuery, can_run: Mask, stopping: StoppingRule
) -> BudgetResult:
    """The result before a speed is known: no pick, and unknown gains."""
    return BudgetResult(
        budget_bytes=query.finite_bytes,
        recipe=query.recipe,
        pick=None,
        considered=int(query.candidates.sum()),
        ruled_out=int((query.candidates & (state.given_up | state.too_large)).sum()),
        measured=0,
        expected_gain=None,
        gain_at_most=None,
        confidence=stopping.confidence,
        is_settled=not (query.candidates & can_run).any(),
    )


def _assess(
    state: SearchState,
    posterior: Posterior,
    query: BudgetQuery,
    view: PlanView,
    can_run: Mask,
    stopping: StoppingRule,
) -> _Assessment:
    """The result to one query so far, and the gain that each candidate could still bring."""
    fits = probability_to_fit(posterior, query.within_bytes)
    is_open = can_run & query.candidates
    # A running candidate counts as measured, with its expected speed.
    rivals = [index for index in state.measured if query.candidates[index]]
    rivals += [index for index in view.outstanding if query.candidates[index]]
    incumbent = fastest_of(posterior, rivals, query.within_bytes)
    gains = expected_gains(posterior, incumbent, fits, is_open)
    remaining = remaining_gain(
        posterior,
        incumbent,
        query.within_bytes,
        gains,
        probability=stopping.confidence,
        seed=len(state.measured),
    )
    is_settled = _is_settled(remaining, incumbent, stopping)
    values = remaining.values
    if is_settled:
        gains = np.zeros(len(gains))
        values = np.zeros(len(gains))
    result = _result(state, posterior, query, fits, remaining, stopping, is_settled=is_settled)
    return _Assessment(result=result, gains=gains, values=values, fits=fits)


def _is_settled(remaining: RemainingGain, incumbent: int | None, stopping: StoppingRule) -> bool:
    """Whether the expected gain is below the regret, or surely no candidate fits."""
    if incumbent is None:
        return remaining.probability_any_fits <= 1 - stopping.confidence
    return remaining.expected <= stopping.regret


def _result(
    state: SearchState,
    posterior: Posterior,
    query: BudgetQuery,
    fits: Array,
    remaining: RemainingGain,
    stopping: StoppingRule,
    *,
    is_settled: bool,
) -> BudgetResult:
    """The result to the query, from measured candidates only."""
    measured = [index for index in state.measured if query.candidates[index]]
    pick = fastest_of(posterior, measured, query.within_bytes)
    # Ruled out without a trial, so measured candidates are not among them.
    ruled_out = state.given_up | state.too_large | (fits < _HARDLY_FITS)
    ruled_out[measured] = False
    return BudgetResult(
        budget_bytes=query.finite_bytes,
        recipe=query.recipe,
        pick=_measured_pick(state, pick),
        considered=int(query.candidates.sum()),
        ruled_out=int((ruled_out & query.candidates).sum()),
        measured=len(measured),
        expected_gain=_finite(remaining.expected),
        gain_at_most=_finite(remaining.at_most),
        confidence=stopping.confidence,
        is_settled=is_settled,
    )


def _measured_pick(state: SearchState, index: int | None) -> MeasuredPick | None:
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
    state: SearchState, queries: Sequence[BudgetQuery], fits: Sequence[Array]
) -> NDArray[np.object_]:
    """For every candidate, the rule that excludes it if it is not measured."""
    rules = np.full(len(state.candidates), skip_reasons.CANNOT_GAIN, dtype=object)
    # A later rule replaces an earlier one. What does not fit one budget may fit another.
    rules[np.max(fits, axis=0) < _HARDLY_FITS] = skip_reasons.DOES_NOT_FIT
    rules[state.too_large] = skip_reasons.TOO_LARGE
    rules[state.given_up] = skip_reasons.DOES_NOT_RUN
    may_answer = np.any([query.candidates for query in queries], axis=0)
    rules[~may_answer] = skip_reasons.OTHER_RECIPE
    return rules
