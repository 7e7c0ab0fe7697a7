"""Effects of techniques from pairs of trials: ``tests.benchmarks.technique_priors``."""

import pytest

from orchestrator.search.model.effects.technique_priors import read_priors, shipped_priors
from orchestrator.search.model.effects.unrecorded import Effect
from tests.benchmarks.technique_priors import Measured, Pair, as_json, effects_of, of_variant


def pair(before: str, after: str, log_time: float) -> Pair:
    return Pair(
        axis="compile",
        before=before,
        after=after,
        log_time=log_time,
        log_memory=0.0,
        overhead_seconds=None,
    )


def test_effects_are_relative_to_the_default_and_variants_to_what_they_vary():
    pairs = [
        pair("none", "inductor_regional", -0.3),
        pair("inductor_regional_tuned", "none", 0.5),
        pair("inductor_regional", "inductor_regional_tuned", -0.1),
    ]
    effects = effects_of(pairs)
    assert effects["compile", "inductor_regional"].log_time == pytest.approx(-0.3)
    assert effects["compile", "inductor_regional_tuned"].log_time == pytest.approx(-0.1)


def test_effect_of_a_variant_adds_to_that_of_what_it_varies():
    reference = Effect(log_time=-0.3, deviation=0.1, overhead_seconds=5.0, models=4)
    measured = [
        Measured(log_time=-0.1, log_memory=0.0, overhead_seconds=4.0),
        Measured(log_time=0.1, log_memory=0.0, overhead_seconds=None),
    ]
    effect = of_variant(reference, measured)
    assert effect.log_time == pytest.approx(-0.3)
    assert effect.deviation > reference.deviation
    assert effect.overhead_seconds == pytest.approx(9.0)
    assert effect.models == 2


def test_priors_survive_json():
    priors = shipped_priors()
    assert read_priors(as_json(priors)).effects == priors.effects
