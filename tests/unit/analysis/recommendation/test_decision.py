"""Recommendations: nothing that meets the constraints is better, and costs are true."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.flags import Flag, FlagKind
from jobs.spec import PLAIN
from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.objectives import OBJECTIVES
from orchestrator.analysis.recommendation import Constraints, Offer, Rankings, recommend
from orchestrator.analysis.recommendation.decision import gpu_counts
from orchestrator.analysis.recommendation.interpolation import candidates_between
from orchestrator.analysis.recommendation.offers import candidates
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


def keeps(candidate: Offer, constraints: Constraints) -> bool:
    """Whether a candidate meets the constraints, in the baseline's recipe."""
    limit = constraints.memory_bytes
    fits = limit is None or candidate.memory_bytes <= limit
    return fits and constraints.allow_training(candidate, PLAIN)


@given(CONFIGURATIONS, CONSTRAINTS)
def test_recommend_nothing_allowed_is_much_better_and_costs_are_true(configurations, constraints):
    rankings = Rankings(configurations)
    answer = recommend(rankings, constraints)
    best = answer.best
    serving = rankings.serving(constraints.effective_batch)
    allowed = [candidate for candidate in serving if keeps(candidate, constraints)]
    assert (best is None) == (not allowed)
    if best is None:
        return
    assert keeps(best, constraints)
    top = max(constraints.score(candidate) for candidate in allowed)
    assert constraints.score(best) >= top - 0.05 * abs(top)
    techniques = {candidate.configuration.techniques for candidate in allowed}
    others = [own.configuration.techniques for own in answer.runners_up]
    assert {best.configuration.techniques, *others} == techniques
    assert len(others) == len(techniques) - 1
    if not best.is_inferred:
        measured = [constraints.score(own) for own in allowed if not own.is_inferred]
        assert constraints.score(best) == max(measured)
    for cost in answer.costs:
        if cost.constraint == "less memory":
            assert cost.candidate.memory_bytes <= 0.8 * best.memory_bytes
        else:
            assert (cost.ratio > 1) == constraints.objective.higher_is_better


@given(CONFIGURATIONS, CONSTRAINTS)
def test_every_configuration_is_ranked_or_counted_with_one_reason(configurations, constraints):
    rankings = Rankings(configurations)
    counted = recommend(rankings, constraints).not_ranked
    ranked = rankings.under(constraints).ranked(constraints.memory_bytes)
    used = {id(own) for offer in ranked for own in (offer.measured, offer.larger)} - {id(None)}
    assert len(used) + sum(counted.values()) == len(configurations)


def test_other_samples_are_named_and_compete_by_tokens_per_second():
    def sized(micro_batch: int, speed: float, tokens: float, length: int | None) -> Configuration:
        figures = {"samples_per_second": speed, "real_tokens_per_second": tokens}
        recipe = {} if length is None else {"sequence_length": length}
        return make_configuration(10, speed, micro_batch=micro_batch, recipe=recipe, **figures)

    rows = [sized(1, 50.0, 500.0, None), sized(2, 60.0, 300.0, 64), sized(4, 10.0, 900.0, 2048)]
    answer = recommend(Rankings(rows), Constraints(all_recipes=True))
    assert [own.configuration for own in answer.other_samples] == [rows[2], rows[1]]
    assert answer.not_ranked == {"other_samples": 2}
    by_tokens = Constraints(all_recipes=True, objective=OBJECTIVES["tokens_per_second"])
    answer = recommend(Rankings(rows), by_tokens)
    assert answer.best.configuration is rows[2]
    assert not answer.not_ranked


def test_recommend_counts_and_names_the_faster_ones_it_leaves_out():
    right = make_configuration(10, 50.0)
    wrong = Flag(FlagKind.LOSS_MISMATCH, 4.0)
    fast = replace(make_configuration(10, 90.0, micro_batch=8), flags=(wrong,))
    slow = replace(make_configuration(10, 40.0, micro_batch=2), flags=(wrong,))
    answer = recommend(Rankings([slow, right, fast]), Constraints())
    assert answer.best.configuration is right
    assert [own.configuration for own in answer.left_out] == [fast, slow]
    assert answer.left_out_better == 1


def test_recommend_names_the_next_larger_memory_the_most_and_much_less():
    def sized(memory: int, speed: float, size: int) -> Configuration:
        return make_configuration(memory, speed, micro_batch=size)

    # 102.1 gains more than 2 %, 101 does not; 96 is nearly as good, 94 is not.
    rows = [sized(100, 100.0, 1), sized(110, 101.0, 2), sized(120, 102.1, 3), sized(200, 150.0, 4)]
    rows += [sized(80, 96.0, 5), sized(60, 94.0, 6)]
    answer = recommend(Rankings(rows), Constraints(memory_bytes=100))
    found = [(cost.constraint, cost.candidate.micro_batch) for cost in answer.costs]
    assert found == [("memory", 3), ("memory", 4), ("less memory", 5)]


@pytest.mark.parametrize("options", [{"effective_batch": 0}, {"effective_batch": 1.5}])
def test_constraints_refuse_what_is_no_count(options):
    with pytest.raises(ValueError, match="whole number above zero"):
        Constraints(**options)
    assert Constraints(effective_batch=1)


def test_objectives_need_what_they_are_computed_from():
    own = make_configuration(1, 50.0, joules_per_sample=2.0)
    # A million samples at 50 a second take 20,000 seconds; 3.6 an hour is 0.001 a second.
    assert OBJECTIVES["dollars_per_million"].of(own, 3.6) == pytest.approx(20.0)
    assert OBJECTIVES["dollars_per_million"].of(own, None) is None
    assert OBJECTIVES["joules_per_sample"].score(own) == -2.0
    assert OBJECTIVES["host_memory"].score(own) == float("-inf")
    old = make_configuration(
        1, 50.0, energy_joules=300.0, samples_per_second=50.0, counted_seconds=3.0
    )
    assert OBJECTIVES["joules_per_sample"].of(old, None) == 2.0


KNOWN = {"parameters_trainable": 10, "parameter_dtypes": "float32"}


def make(gpus: int, memory: int, speed: float, micro_batch: int = 4) -> Configuration:
    batch = {"micro_batch": micro_batch, "effective_batch": micro_batch * gpus}
    more = {"world_size": None if gpus == 1 else gpus, "effective_batch": batch["effective_batch"]}
    return make_configuration(memory, speed, micro_batch=micro_batch, **{**KNOWN, **more})


def test_efficiency_compares_with_the_best_on_one_gpu_within_the_memory():
    run = [make(1, 100, 40.0), make(1, 50, 30.0), make(2, 50, 54.0), make(4, 60, 90.0)]
    within = {own.gpus: own for own in gpu_counts(Rankings(run), Constraints(memory_bytes=60))}
    assert [own.best.configuration.samples_per_second for own in within.values()] == [30, 54, 90]
    assert [own.efficiency for own in within.values()] == [1.0, 0.9, 0.75]
    assert within[4].samples_per_second_per_gpu == 22.5
    # With more memory, one GPU is faster, so that two are worth less.
    more = gpu_counts(Rankings(run), Constraints())
    assert more[1].efficiency == pytest.approx(54 / 80)


def test_what_fits_only_on_several_gpus_has_no_efficiency():
    run = [make(1, 100, 40.0), make(2, 50, 54.0)]
    (own,) = gpu_counts(Rankings(run), Constraints(memory_bytes=60))
    assert (own.gpus, own.efficiency) == (2, None)


def test_run_on_one_number_of_gpus_has_no_comparison():
    assert not gpu_counts(Rankings([make(2, 1, 1.0), make(2, 2, 2.0, 8)]), Constraints())


@pytest.mark.parametrize(("gpus", "accumulation"), [(1, 4), (2, 2), (4, 1)])
def test_effective_batch_counts_all_gpus(gpus, accumulation):
    (offer,) = candidates([make(gpus, 100, 40.0)], 16)
    assert (offer.accumulation, offer.effective_batch) == (accumulation, 16)


def test_micro_batch_between_two_divides_the_batch_of_all_gpus():
    def sizes(gpus: int) -> list[tuple[int, int]]:
        run = [make(gpus, 100, 40.0, 4), make(gpus, 200, 50.0, 16)]
        return [(own.micro_batch, own.accumulation) for own in candidates_between(run, 40)]

    assert sizes(1) == [(5, 8), (8, 5), (10, 4)]
    assert sizes(4) == [(5, 2), (10, 1)]


def test_dollars_count_every_gpu():
    dollars = OBJECTIVES["dollars_per_million"]
    one, two = (dollars.of(make(gpus, 1, 100.0), 3.6) for gpus in (1, 2))
    assert (one, two) == (10.0, 20.0)
