"""Which candidate comes next, and when a query counts as settled."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest

from jobs.record import Outcome
from orchestrator.search.best import skip_reasons
from orchestrator.search.best.budget_queries import BudgetQuery, decide
from orchestrator.search.best.plan_state import PlanState
from orchestrator.search.best.state import SearchState
from orchestrator.search.best.stopping_rule import StoppingRule
from orchestrator.search.model.candidates import candidates_of
from orchestrator.search.model.effects.technique_priors import TechniquePriors
from orchestrator.units import GIB
from tests.benchmarks.grids import make_record, make_spec

SPECS = [
    make_spec({"optimizer": optimizer, "micro_batch": size, "accumulation": 1})
    for optimizer in ("adamw", "sgd")
    for size in (2, 4, 8)
]
"""Candidates 0 to 2 are adamw's, of rising size; 3 to 5 are those of sgd."""
BASELINE = {"optimizer": "adamw", "micro_batch": 4, "accumulation": 1}
STOPPING = StoppingRule(regret=0.01, confidence=0.95)


def state() -> SearchState:
    memory = {spec.trial_id: (4.0 + spec.micro_batch) * GIB for spec in SPECS}
    return SearchState(candidates_of(SPECS), memory, TechniquePriors(effects={}), {})


def query(*candidates: int, budget: float = math.inf) -> BudgetQuery:
    mask = np.isin(np.arange(len(SPECS)), candidates or range(len(SPECS)))
    return BudgetQuery(budget, budget, "", mask)


def plan(outstanding: Sequence[int] = (), measured: Sequence[int] = ()) -> PlanState:
    known = PlanState(candidates_of(SPECS), BASELINE)
    known.outstanding.update(SPECS[index].trial_id for index in outstanding)
    known.ended.update(SPECS[index].trial_id for index in measured)
    return known


def measure(known: SearchState, index: int, speed: float, **figures: float) -> None:
    size = SPECS[index].micro_batch
    record = make_record(
        SPECS[index], (4.0 + size) * GIB, speed, device_bytes=80 * GIB, slot_seconds=5.0, **figures
    )
    known.note(index, record)


def test_before_any_speed_the_baseline_comes_first_even_where_it_answers_nothing():
    decisions = decide(state(), plan(), [query(3, 4, 5)], STOPPING)
    assert decisions.next == 1
    assert decisions.skipped == dict.fromkeys((0, 2), skip_reasons.OTHER_RECIPE)
    (result,) = decisions.results
    assert (result.considered, result.ruled_out, result.measured) == (3, 0, 0)
    assert (result.pick, result.is_settled) == (None, False)


def test_before_any_speed_one_trial_runs_at_a_time():
    assert decide(state(), plan(outstanding=[1]), [query()], STOPPING).next is None
    # The baseline failed, so the most similar one without its optimizer follows.
    known = state()
    known.note(1, dataclasses.replace(make_record(SPECS[1], 0, 1.0), outcome=Outcome.FAILED))
    assert decide(known, plan(measured=[1]), [query()], STOPPING).next == 4


@pytest.mark.parametrize("seconds_left", [0.0, -1.0])
def test_nothing_is_measured_without_time(seconds_left):
    known = state()
    stopping = dataclasses.replace(STOPPING, slot_seconds=seconds_left)
    decisions = decide(known, plan(), [query()], stopping)
    assert (decisions.next, len(decisions.skipped)) == (None, len(SPECS))
    measure(known, 1, 10.0)
    stopping = dataclasses.replace(STOPPING, slot_seconds=known.slot_seconds + seconds_left)
    decisions = decide(known, plan(measured=[1]), [query()], stopping)
    assert (decisions.next, len(decisions.skipped)) == (None, len(SPECS) - 1)
    assert skip_reasons.OUT_OF_TIME in decisions.skipped.values()


@pytest.mark.parametrize(("seconds_left", "allowed"), [(240.0, 120.0), (60.0, 30.0), (4.0, 10.0)])
def test_before_any_speed_a_trial_may_take_half_of_what_is_left(seconds_left, allowed):
    known = state()
    failed = make_record(SPECS[1], None, None, slot_seconds=40.0)
    known.note(1, dataclasses.replace(failed, outcome=Outcome.FAILED))
    stopping = dataclasses.replace(STOPPING, slot_seconds=40.0 + seconds_left)
    assert decide(known, plan(measured=[1]), [query()], stopping).allowed_seconds == allowed


@pytest.mark.parametrize(
    ("running", "seconds_left", "following"),
    [([], 8.0, 3), ([2], 8.0, None), ([2], 16.0, 3), ([2, 5], 16.0, None)],
)
def test_a_running_trial_is_charged_with_what_it_is_expected_to_take(
    running, seconds_left, following
):
    known = state()
    measure(known, 1, 10.0)
    stopping = dataclasses.replace(STOPPING, slot_seconds=known.slot_seconds + seconds_left)
    # Of candidates 2 and 5, each is expected to take 9 seconds, and candidate 3 takes 3.
    decisions = decide(known, plan(outstanding=running, measured=[1]), [query()], stopping)
    assert decisions.next == following


def test_a_size_beyond_one_that_ran_out_of_memory_is_never_asked_for():
    known = state()
    known.note(4, make_record(SPECS[4], None, None, device_bytes=8 * GIB))
    decisions = decide(known, plan(measured=[4]), [query(3, 4, 5)], STOPPING)
    assert decisions.skipped[5] == skip_reasons.TOO_LARGE
    assert decisions.results[0].ruled_out == 2


def test_query_is_settled_once_nothing_can_beat_its_pick():
    known = state()
    for index, speed in enumerate((10.0, 18.0, 30.0, 12.0, 21.0)):
        measure(known, index, speed)
    open_query, settled_query = query(2, 5), query(2, 3)
    decisions = decide(known, plan(measured=range(5)), [open_query, settled_query], STOPPING)
    first, second = decisions.results
    assert (first.is_settled, second.is_settled) == (False, True)
    assert first.pick.trial_id == SPECS[2].trial_id
    assert second.gain_at_most == 0.0
    assert decisions.next == 5


def test_query_that_nothing_fits_is_settled_once_the_smallest_was_tried():
    known = state()
    measure(known, 1, 10.0)
    too_small = query(0, 1, 2, budget=1.0 * GIB)
    decisions = decide(known, plan(measured=[1]), [too_small], STOPPING)
    assert decisions.next == 0
    assert not decisions.results[0].is_settled
    # Trials for other budgets come first, because they may be as small.
    assert decide(known, plan(measured=[1]), [too_small, query(3, 4)], STOPPING).next in {3, 4}
    assert decide(known, plan(outstanding=[0], measured=[1]), [too_small], STOPPING).next is None
    measure(known, 0, 10.0)
    decisions = decide(known, plan(measured=[0, 1]), [query(budget=1.0 * GIB)], STOPPING)
    (result,) = decisions.results
    assert (result.is_settled, result.pick, result.ruled_out) == (True, None, 4)
    assert decisions.next is None
    assert set(decisions.skipped.values()) == {skip_reasons.DOES_NOT_FIT}


def test_host_bound_speed_bounds_what_its_curve_can_reach():
    known = state()
    measure(known, 1, 4.0, host_bound_share=1.0)
    posterior = known.posterior()
    # A micro-batch of 4 took the host a second; of the same curve, none takes much less.
    highest = np.exp(posterior.highest_log_speed)
    assert highest[:3:2] == pytest.approx(np.array([2.0, 8.0]) * math.exp(0.2))
    # The loader took none of this time, so another one would not be faster.
    assert highest[1] == pytest.approx(4.0 * math.exp(0.003))
    assert highest[3:] == pytest.approx(np.array([2.0, 4.0, 8.0]) * math.exp(1.4))
