"""One decision everywhere, and never a training that is known to be wrong."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.flags import LOSS, has_any
from jobs.record import Outcome
from orchestrator.analysis.follow_up_results import CapCheck, PairedComparison
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import (
    Constraints,
    Offer,
    Rankings,
    Recommendation,
    recommend,
)
from orchestrator.units import GIB
from tests.support.configurations import make_configuration
from tests.support.recorded_runs import RECORDED, recorded

RUNS = sorted(path.parent.name for path in RECORDED.glob("*/trials.parquet"))
TECHNIQUES = "2026-11-21-all_techniques-2xh200"
GUIDE = "2026-11-21-docs_table-h200"


def named(answer: Recommendation) -> Iterator[Offer]:
    """Everything that an answer offers to train with."""
    if answer.best is not None:
        yield answer.best
    yield from answer.runners_up
    yield from (other.candidate for other in (*answer.costs, *answer.nearby))


@pytest.mark.parametrize("run", [TECHNIQUES, GUIDE])
@pytest.mark.parametrize("effective_batch", [None, 4, 64])
@pytest.mark.parametrize("all_recipes", [False, True])
def test_recommend_offers_nothing_that_trains_wrongly(run, effective_batch, all_recipes):
    results = recorded(run)
    for memory_bytes in (None, 8 * GIB, 24 * GIB):
        constraints = Constraints(
            memory_bytes=memory_bytes, effective_batch=effective_batch, all_recipes=all_recipes
        )
        for candidate in named(recommend(results.rankings, constraints)):
            assert not has_any(candidate.configuration.flags, LOSS)
            assert not candidate.measured.trains_wrongly


@pytest.mark.parametrize("run", RUNS)
def test_budgets_and_recommend_show_one_decision(run):
    results = recorded(run)
    for pick in results.budget_picks:
        best = recommend(results.rankings, Constraints(memory_bytes=pick.budget_bytes)).best
        assert (best and best.configuration) is pick.best


CONFIGURATIONS = st.lists(
    st.builds(
        make_configuration,
        st.integers(1, 30),
        st.floats(1, 100),
        micro_batch=st.sampled_from([1, 2, 4]),
        trial_id=st.sampled_from(["a", "b", "c", "d"]),
    ),
    max_size=8,
)
CHECKS = st.lists(
    st.builds(
        CapCheck,
        trial_id=st.just("check"),
        follows_trial=st.sampled_from(["a", "b", "c", "d"]),
        budget_bytes=st.integers(1, 30),
        outcome=st.just(Outcome.OUT_OF_MEMORY),
        memory_bytes=st.none(),
        samples_per_second=st.none(),
    ),
    max_size=3,
)
COMPARISONS = st.lists(
    st.builds(
        PairedComparison,
        trial_id=st.sampled_from(["a", "b"]),
        reference_id=st.sampled_from(["c", "d"]),
        ratio=st.floats(0.9, 1.1),
        ci95=st.just(0.01),
        rounds=st.just(4),
    ),
    max_size=3,
)


@given(CONFIGURATIONS, CHECKS, COMPARISONS)
def test_decision_steps_agree_with_the_pick_at_every_byte(configurations, checks, comparisons):
    rankings = Rankings(configurations, checks=checks, comparisons=comparisons)
    ranking = rankings.under(Constraints())
    steps = ranking.decision_steps()
    assert all(one.candidate is not other.candidate for one, other in itertools.pairwise(steps))
    for budget in range(35):
        reached = [step.candidate for step in steps if step.least_bytes <= budget]
        assert ranking.pick(budget) is (reached[-1] if reached else None)


def test_ranking_prefers_a_measurement_to_an_inferred_advantage_of_less_than_5_percent():
    known = {"parameters_trainable": 1, "parameter_dtypes": "float32"}

    def pick(inferred_speed: float) -> Offer | None:
        inferred = make_configuration(1, inferred_speed, micro_batch=2, **known)
        rankings = Rankings([make_configuration(9, 100.0, micro_batch=8), inferred])
        return rankings.under(Constraints(effective_batch=8)).pick()

    close, clear = pick(104.0), pick(106.0)
    assert (close.is_inferred, clear.is_inferred) == (False, True)


def test_ranking_by_another_objective_ignores_tie_breaks():
    first = make_configuration(1, 100.0, trial_id="a")
    second = make_configuration(1, 99.0, trial_id="b", micro_batch=8)
    won = PairedComparison(trial_id="b", reference_id="a", ratio=1.02, ci95=0.01, rounds=4)
    rankings = Rankings([first, second], comparisons=[won])
    by_price = Constraints(objective=OBJECTIVES["dollars_per_million"], price_per_hour=1.0)
    picks = [rankings.under(each).pick() for each in (Constraints(), by_price)]
    assert [own and own.configuration for own in picks] == [second, first]


def test_recommendation_names_the_tie_breaks_of_its_best_alone():
    rows = [make_configuration(1, 100.0 - n, trial_id=own) for n, own in enumerate("abc")]
    pairs = [("b", "a"), ("c", "b"), ("b", "not ranked")]
    played = [
        PairedComparison(trial_id=one, reference_id=other, ratio=1.0, ci95=0.01, rounds=4)
        for one, other in pairs
    ]
    assert recommend(Rankings(rows, comparisons=played), Constraints()).comparisons == (played[0],)
