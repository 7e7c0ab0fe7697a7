"""What is expected of techniques: recorded effects, those of similar values, and assumptions."""

import math

import pytest

from orchestrator.search.model.effects import unrecorded
from orchestrator.search.model.effects.similar_values import correlation
from orchestrator.search.model.effects.technique_priors import TechniquePriors, shipped_priors
from orchestrator.search.model.effects.unrecorded import Effect

# A machine without a GPU has no table either, except for the overheads.
WITHOUT_TABLES = pytest.mark.parametrize(
    "priors", [TechniquePriors(), shipped_priors().overheads_alone()]
)


def recorded(axis: str, **effects: Effect) -> TechniquePriors:
    return TechniquePriors(effects={axis: effects})


def test_priors_of_a_recorded_value_are_as_recorded():
    effect = Effect(log_time=0.2, deviation=0.1, models=2)
    assert recorded("attention", eager=effect).of("attention", "eager") == effect


def test_priors_of_an_unrecorded_budget_follow_recorded_ones():
    slow = Effect(log_time=0.4, deviation=0.1, models=3)
    priors = TechniquePriors(effects={"activations": {"budget_0.2": slow}})
    near, far = (priors.of("activations", name) for name in ("budget_0.3", "budget_0.9"))
    usual, usual_far = (
        unrecorded.expectation("activations", name).log_time
        for name in ("budget_0.3", "budget_0.9")
    )
    assert usual < near.log_time < slow.log_time
    assert near.models == 0
    # The further away, the less it says.
    assert far.log_time - usual_far < near.log_time - usual


def test_priors_of_unrecorded_budgets_grow_with_what_is_recomputed():
    priors = recorded("precision", bf16=Effect(models=1))
    shares = ["budget_0.95", "budget_0.5", "budget_0.05"]
    times = [priors.of("activations", name).log_time for name in shares]
    memories = [priors.of("activations", name).log_memory for name in shares]
    assert times == sorted(times)
    assert memories == sorted(memories, reverse=True)


def test_priors_of_regional_compilation_follow_the_whole_graph():
    priors = TechniquePriors(
        effects={"compile": {"inductor": Effect(log_time=-0.6, deviation=0.1, models=4)}}
    )
    regional = priors.of("compile", "inductor_regional")
    assert regional.log_time < unrecorded.expectation("compile", "inductor_regional").log_time
    # It takes less time to compile than what was recorded of the whole graph.
    assert 0 < regional.overhead_seconds < 20
    assert priors.of("compile", "inductor_tuned").overhead_seconds > 40


def test_priors_of_similar_values_are_as_wide_as_those_differ():
    narrow = recorded("compile", inductor=Effect(deviation=0.1, models=3))
    wide = recorded("compile", inductor=Effect(deviation=0.6, models=3))
    name = ("compile", "inductor_tuned")
    assert wide.of(*name).deviation > narrow.of(*name).deviation


@WITHOUT_TABLES
def test_priors_without_tables_expect_overheads_but_no_speed(priors):
    assert priors.of("precision", "bf16").log_time == 0.0
    effect = priors.of("compile", "inductor")
    assert (effect.log_time, effect.models) == (0.0, 0)
    assert effect.overhead_seconds > 30
    assert effect.deviation > shipped_priors().of("loop", "trainer_async").deviation


@WITHOUT_TABLES
def test_priors_without_tables_know_that_checkpointing_is_more_work(priors):
    effect = priors.between("activations", "keep", "checkpoint")
    assert 0 < effect.deviation < effect.log_time
    back = priors.between("activations", "checkpoint", "keep")
    assert (back.log_time, back.deviation) == (-effect.log_time, effect.deviation)


def test_values_without_tables_share_the_uncertainty_of_their_reference():
    assert TechniquePriors().correlation("precision", "bf16", "tf32") == 0.5
    assert TechniquePriors().correlation("precision", "bf16", "bf16") == 1.0
    assert shipped_priors().correlation("precision", "bf16", "tf32") == 0.0


def test_priors_between_two_fast_precisions_are_narrow():
    priors = shipped_priors()
    assert priors.between("precision", "bf16", "fp16").deviation < 0.2
    assert priors.between("precision", "bf16", "bf16").deviation == 0.0


@pytest.mark.parametrize(
    ("axis", "value", "least", "most"),
    [
        ("activations", "budget_0.05", 0.4, 1.0),
        ("compile", "inductor_regional", 0.5, 1.3),
        ("offload", "zero2_cpu_optimizer", 0.3, 1.0),
        ("loop", "trainer_async", 0.98, 1.02),
    ],
)
def test_shipped_priors_expect_plausible_memory(axis, value, least, most):
    assert least <= math.exp(shipped_priors().of(axis, value).log_memory) <= most


@pytest.mark.parametrize(
    ("first", "second", "least", "most"),
    [
        ("budget_0.2", "budget_0.2", 1.0, 1.0),
        ("budget_0.2", "budget_0.3", 0.95, 1.0),
        ("budget_0.05", "budget_0.95", 0.1, 0.3),
        ("lora_r8", "lora_r64", 0.4, 0.6),
        ("inductor", "inductor_regional", 0.9, 0.99),
        ("lora(alpha=16,r=16)", "lora(alpha=16,dtype=bfloat16,r=16)", 0.9, 0.99),
        ("lora(r=8)", "vera(r=8)", 0.0, 0.0),
        ("keep", "checkpoint", 0.0, 0.0),
    ],
)
def test_correlation_of_values_follows_their_names(first, second, least, most):
    assert least <= correlation(first, second) <= most
    assert correlation(first, second) == correlation(second, first)
