"""Recommendations: nothing that meets the constraints is better, and costs are true."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.flags import Flag, FlagKind
from jobs.spec import PLAIN
from orchestrator.analysis.accumulation import Candidate
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import Constraints, decision, recommend
from orchestrator.analysis.recommendation.ranking import all_candidates
from tests.support.configurations import make_configuration

CONFIGURATIONS = st.lists(
    st.builds(
        make_configuration,
        st.integers(1, 100),
        st.floats(1, 100),
        micro_batch=st.sampled_from([1, 2, 4]),
        accumulation=st.sampled_from([1, 2, 4]),
        recipe=st.sampled_from([{}, {"optimizer": "sgd"}]),
        parameters_trainable=st.just(3),
        parameter_dtypes=st.just("float32"),
    ),
    max_size=12,
)
CONSTRAINTS = st.builds(
    Constraints,
    memory_bytes=st.none() | st.integers(1, 100),
    effective_batch=st.none() | st.sampled_from([2, 4, 8, 16]),
    all_recipes=st.booleans(),
    price_per_hour=st.just(4.0),
    objective=st.sampled_from(
        [OBJECTIVES["samples_per_second"], OBJECTIVES["dollars_per_million"]]
    ),
)


def keeps(candidate: Candidate, constraints: Constraints) -> bool:
    """Whether a candidate meets the constraints, in the baseline's recipe."""
    limit = constraints.memory_bytes
    fits = limit is None or candidate.configuration.memory_bytes <= limit
    return fits and constraints.allow_training(candidate, PLAIN)


@given(CONFIGURATIONS, CONSTRAINTS)
def test_recommend_nothing_allowed_is_much_better(
    configurations: list[Configuration], constraints: Constraints
) -> None:
    best = recommend(configurations, constraints).best
    allowed = [
        candidate
        for candidate in all_candidates(configurations, constraints.effective_batch)
        if keeps(candidate, constraints)
    ]
    assert (best is None) == (not allowed)
    if best is None:
        return
    assert keeps(best, constraints)
    top = max(constraints.score(candidate) for candidate in allowed)
    assert constraints.score(best) >= top - 0.05 * abs(top)
    if not best.is_inferred:
        measured = [constraints.score(own) for own in allowed if not own.is_inferred]
        assert constraints.score(best) == max(measured)


@given(CONFIGURATIONS, CONSTRAINTS)
def test_recommend_costs_are_improvements_or_savings(
    configurations: list[Configuration], constraints: Constraints
) -> None:
    answer = recommend(configurations, constraints)
    if answer.best is None:
        return
    for cost in answer.costs:
        assert cost.ratio is not None
        if cost.constraint == "less memory":
            assert (
                cost.candidate.configuration.memory_bytes < answer.best.configuration.memory_bytes
            )
        elif constraints.objective.higher_is_better:
            assert cost.ratio > 1
        else:
            assert cost.ratio < 1


def test_recommend_leaves_out_and_counts_loss_mismatches() -> None:
    import dataclasses

    wrong = dataclasses.replace(
        make_configuration(10, 100.0), flags=(Flag(FlagKind.LOSS_MISMATCH, 4.0),)
    )
    right = make_configuration(10, 50.0, micro_batch=8)
    answer = recommend([wrong, right], Constraints())
    assert answer.best is not None
    assert answer.best.configuration is right
    assert (answer.left_out.count, answer.left_out.better) == (1, 1)


def test_objectives_money_needs_a_price() -> None:
    own = make_configuration(1, 50.0)
    # A million samples at 50 a second take 20,000 seconds; 3.6 an hour is 0.001 a second.
    assert OBJECTIVES["dollars_per_million"].of(own, 3.6) == pytest.approx(20.0)
    assert OBJECTIVES["dollars_per_million"].of(own, None) is None


def test_objectives_energy_comes_from_the_counted_steps_in_old_tables() -> None:
    new = make_configuration(1, 50.0, joules_per_sample=2.0)
    assert OBJECTIVES["joules_per_sample"].score(new) == -2.0
    old = make_configuration(
        1, 50.0, energy_joules=300.0, samples_per_second=50.0, counted_seconds=3.0
    )
    assert OBJECTIVES["joules_per_sample"].of(old, None) == 2.0
    assert OBJECTIVES["host_memory"].score(old) == float("-inf")


def test_recommend_infers_the_candidates_of_an_effective_batch_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int | None] = []

    def counted(
        configurations: Sequence[Configuration], effective_batch: int | None
    ) -> list[Candidate]:
        asked.append(effective_batch)
        return all_candidates(configurations, effective_batch)

    monkeypatch.setattr(decision, "all_candidates", counted)
    known = {"parameters_trainable": 3, "parameter_dtypes": "float32"}
    configurations = [
        make_configuration(10 * size, 10.0 * size, micro_batch=size, **known) for size in (1, 2, 4)
    ]
    answer = recommend(configurations, Constraints(effective_batch=8, memory_bytes=30))
    assert answer.best is not None
    assert answer.best.micro_batch == 1
    assert sorted(asked, key=str) == [8, None]
