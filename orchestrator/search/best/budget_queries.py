"""The decisions of the search: which candidate to measure next, or to end."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.best import skip_reasons
from orchestrator.search.best.gain import (
    Posterior,
    RemainingGain,
    expected_gains,
    fastest_of,
    gains_by_forecast,
    most_per_second,
    probability_to_fit,
    remaining_gain,
    smaller_than_tried,
)
from orchestrator.search.best.plan_state import PlanState
from orchestrator.search.best.state import SearchState
from orchestrator.search.best.stopping_rule import StoppingRule
from orchestrator.search.model.arrays import Array, Mask
from orchestrator.storage.search_summary import BudgetResult

_HARDLY_FITS = 0.05
"""A candidate that fits with less than this probability counts as ruled out."""
_UNKNOWN = RemainingGain(probability_any_fits=1.0, values=np.zeros(0))


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

    def among(self, candidates: Iterable[int]) -> list[int]:
        return [index for index in candidates if self.candidates[index]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """The decisions that follow from all records so far."""

    next: int | None
    """The candidate to measure now; None: none, or none before a running trial ends."""
    skipped: Mapping[int, str]
    """Open candidate that will not be measured -> the rule that excludes it."""
    results: tuple[BudgetResult, ...]
    allowed_seconds: float = math.inf
    """Slot time that the next trial may take."""


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
    forecast_gains: Array
    """Gain of each candidate that is likely to fit, by its forecast alone."""


def decide(
    state: SearchState, plan: PlanState, queries: Sequence[BudgetQuery], stopping: StoppingRule
) -> Decisions:
    """The next candidate, and the results so far. Deterministic: equal records, equal decisions."""
    if not len(state.candidates):
        return Decisions(next=None, skipped={}, results=())
    deciding = _Deciding(
        state=state, plan=plan, queries=queries, stopping=stopping, is_open=plan.is_open
    )
    posterior = state.posterior()
    return deciding.before_any_speed() if posterior is None else deciding.by_value(posterior)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Deciding:
    """What decisions are made from."""

    state: SearchState
    plan: PlanState
    queries: Sequence[BudgetQuery]
    stopping: StoppingRule
    is_open: Mask
    """Whether a candidate has an open trial, shape (candidates,)."""

    def before_any_speed(self) -> Decisions:
        """One candidate at a time, by similarity to the baseline."""
        can_run = self._can_run()
        is_worth_measuring = can_run & self._may_answer()
        # The baseline is measured even where it cannot result, such as at another effective batch.
        baseline = self.plan.by_similarity[0]
        is_worth_measuring[baseline] = can_run[baseline]
        left = self._seconds_left(np.zeros(len(can_run)))
        if left <= 0:
            is_worth_measuring[:] = False
        ranked = [] if self.plan.outstanding else self.plan.by_similarity
        fits = np.ones(len(can_run))
        results = []
        for query in self.queries:
            is_settled = not (query.candidates & can_run).any()
            results.append(self._result(query, None, fits, _UNKNOWN, is_settled=is_settled))
        return Decisions(
            next=next((index for index in ranked if is_worth_measuring[index]), None),
            skipped=self._skipped(self._rules(fits), is_worth_measuring),
            results=tuple(results),
            allowed_seconds=self.stopping.first_seconds(left),
        )

    def by_value(self, posterior: Posterior) -> Decisions:
        """The candidate with the largest value per second for all queries together."""
        state = self.state
        can_run = self._can_run()
        can_run &= ~state.loaders.wait_for_a_twin(posterior.log_speed, can_run, state.measured)
        expected = state.seconds(posterior)
        seconds = np.maximum(expected, state.failures.late_seconds())
        left = self._seconds_left(seconds)
        assessments = [self._assess(posterior, query, can_run) for query in self.queries]
        # One trial can improve several results, so its gains add up.
        gains = np.sum([assessment.gains for assessment in assessments], axis=0)
        values = np.sum([assessment.values for assessment in assessments], axis=0)
        can_gain = (gains > 0) & can_run
        allowed = self.stopping.allowed_seconds(expected, left)
        # What similar trials did not do in their time, another would not do in its own either.
        is_worth_measuring = can_gain & (seconds <= np.minimum(left, allowed))
        rules = self._rules(np.max([assessment.fits for assessment in assessments], axis=0))
        rules[can_gain & ~is_worth_measuring] = skip_reasons.OUT_OF_TIME
        # Open repeats of what was measured run first.
        repeats = [index for index in state.measured if self.is_open[index]]
        best = most_per_second(values, gains, seconds, is_worth_measuring)
        leader = _first_by_forecast(assessments, is_worth_measuring, seconds)
        chosen = next(iter(repeats), best if leader is None else leader)
        is_worth_measuring[repeats] = True
        return Decisions(
            next=chosen,
            skipped=self._skipped(rules, is_worth_measuring),
            results=tuple(assessment.result for assessment in assessments),
            allowed_seconds=float(allowed[chosen or 0]),
        )

    def _seconds_left(self, seconds: Array) -> float:
        """Slot time for further trials. A running one is charged with its expected ``seconds``."""
        running = float(seconds[self.plan.outstanding_candidates].sum())
        return self.stopping.slot_seconds - self.state.slot_seconds - running

    def _can_run(self) -> Mask:
        can_run = self.is_open & ~self.state.cannot_run
        # A candidate with a running trial waits for its result.
        can_run[self.plan.outstanding_candidates] = False
        return can_run

    def _may_answer(self) -> Mask:
        """Whether a candidate can be the result of any query, shape (candidates,)."""
        return np.asarray(np.any([query.candidates for query in self.queries], axis=0))

    def _assess(self, posterior: Posterior, query: BudgetQuery, can_run: Mask) -> _Assessment:
        """The result to one query so far, and each candidate's gain."""
        fits = probability_to_fit(posterior, query.within_bytes)
        measured = query.among(self.state.measured)
        # A running candidate counts as measured, with its expected speed.
        rivals = [*measured, *query.among(self.plan.outstanding_candidates)]
        incumbent = fastest_of(posterior, rivals, query.within_bytes)
        gains = expected_gains(posterior, incumbent, fits, can_run & query.candidates)
        remaining = remaining_gain(
            posterior,
            incumbent,
            query.within_bytes,
            gains,
            probability=self.stopping.confidence,
            seed=len(self.state.measured),
        )
        is_settled = self._is_settled(remaining, incumbent)
        smallest = smaller_than_tried(posterior, rivals, can_run & query.candidates)
        if is_settled and incumbent is None and smallest is not None:
            # The prediction may be wrong. That nothing fits is said once the smallest was tried. It
            # has the least value there is, because trials of other queries may show it, too.
            is_settled, gains = False, np.finfo(float).tiny * np.eye(1, len(gains), smallest)[0]
            remaining = replace(remaining, values=gains)
        pick = fastest_of(posterior, measured, query.within_bytes)
        forecast, tried = self.state.forecast_log_speed, list(self.state.measured)
        by_forecast = gains_by_forecast(posterior, forecast, incumbent, tried, self.stopping.regret)
        is_open = not is_settled
        return _Assessment(
            result=self._result(query, pick, fits, remaining, is_settled=is_settled),
            gains=is_open * gains,
            values=is_open * remaining.values,
            fits=fits,
            forecast_gains=(is_open & query.candidates & (fits >= 0.5)) * by_forecast,
        )

    def _is_settled(self, remaining: RemainingGain, incumbent: int | None) -> bool:
        """Whether the expected gain is below the regret, or surely no candidate fits."""
        if incumbent is None:
            return remaining.probability_any_fits <= 1 - self.stopping.confidence
        return remaining.expected <= self.stopping.regret

    def _result(
        self,
        query: BudgetQuery,
        pick: int | None,
        fits: Array,
        remaining: RemainingGain,
        *,
        is_settled: bool,
    ) -> BudgetResult:
        measured = query.among(self.state.measured)
        # Ruled out without a trial, so measured candidates are not among them.
        ruled_out = self.state.cannot_run | (fits < _HARDLY_FITS)
        ruled_out[measured] = False
        return BudgetResult(
            budget_bytes=None if math.isinf(query.budget_bytes) else int(query.budget_bytes),
            recipe=query.recipe,
            pick=None if pick is None else self.state.measured[pick].as_pick(),
            considered=int(query.candidates.sum()),
            ruled_out=int((ruled_out & query.candidates).sum()),
            measured=len(measured),
            expected_gain=_finite(remaining.expected),
            gain_at_most=_finite(remaining.at_most),
            confidence=self.stopping.confidence,
            is_settled=is_settled,
        )

    def _rules(self, fits: Array) -> NDArray[np.object_]:
        """For every candidate, the rule that excludes it; ``fits``: the largest probability to fit
        a budget."""
        rules = np.full(len(fits), skip_reasons.CANNOT_GAIN, dtype=object)
        # A later rule replaces an earlier one.
        rules[fits < _HARDLY_FITS] = skip_reasons.DOES_NOT_FIT
        rules[self.state.too_large] = skip_reasons.TOO_LARGE
        rules[self.state.failures.given_up] = skip_reasons.DOES_NOT_RUN
        rules[~self._may_answer()] = skip_reasons.OTHER_RECIPE
        return rules

    def _skipped(self, rules: NDArray[np.object_], is_worth_measuring: Mask) -> dict[int, str]:
        left_out = self.is_open & ~is_worth_measuring
        return {index: rules[index] for index in np.flatnonzero(left_out).tolist()}


def _first_by_forecast(
    assessments: Sequence[_Assessment], is_worth_measuring: Mask, seconds: Array
) -> int | None:
    """The candidate that gains most per second in all budgets together, by the forecasts; of those
    that fit a budget without a pick before others. For a budget with neither a pick nor a forecast,
    what the measurements let expect counts instead."""
    totals = np.sum([own.forecast_gains for own in assessments], axis=0)
    totals *= is_worth_measuring
    empty = [own.forecast_gains for own in assessments if own.result.pick is None]
    first = totals * np.any([gains > 0 for gains in empty], axis=0) if empty else totals
    if totals.any():
        for own in assessments:
            if own.result.pick is None and not own.forecast_gains.any():
                totals += own.gains * (own.fits >= 0.5) * is_worth_measuring
    per_second = (first if first.any() else totals) / seconds
    return int(np.argmax(per_second)) if per_second.any() else None


def _finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None
