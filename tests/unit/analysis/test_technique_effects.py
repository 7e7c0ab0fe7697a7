"""What techniques are compared with, and what each did to the baseline."""

import pytest

from jobs.record import TrialRecord
from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.baseline import baseline_choices, ranked_recipe
from orchestrator.analysis.technique_effects import (
    technique_effects,
    useful_micro_batch,
)
from tests.support.configurations import measured
from tests.support.records import make_guide, make_record

BASELINE = make_guide()[0].spec.choices


def test_technique_effects_are_medians_over_pairs_that_differ_on_one_axis():
    effects = {
        (effect.axis, effect.value): effect
        for effect in technique_effects(measured(make_guide()), BASELINE)
    }
    accumulation = effects["accumulation", 4]
    assert (accumulation.pairs, accumulation.memory_ratio) == (1, 6500 / 7800)
    assert effects["activations", "checkpoint"].speed_ratio == 12 / 15
    fp16 = effects["precision", "fp16"]
    assert fp16.pairs == 2
    assert fp16.speed_ratio == pytest.approx((76 / 34 + 13 / 12) / 2)
    assert not any(axis == "micro_batch" for axis, _ in effects)


def by_batch(precision: str, speeds: dict[int, float]) -> list[TrialRecord]:
    records = []
    for micro_batch, speed in speeds.items():
        records.append(make_record(precision=precision, micro_batch=micro_batch, speed=speed))
    return records


@pytest.mark.parametrize(
    ("bf16", "expected"),
    [
        # bf16 gains nothing at a micro-batch of 1, where the GPU waits, and four times at 16.
        ({1: 10.0, 4: 60.0, 16: 160.0}, (16, 1, 4.0)),
        # Without a pair at 16, the next smaller one counts.
        ({1: 9.0, 4: 60.0}, (4, 1, 2.0)),
    ],
)
def test_technique_effects_are_stated_at_the_useful_micro_batch(bf16, expected):
    records = by_batch("fp32", {1: 10.0, 4: 30.0, 16: 40.0, 32: 41.0}) + by_batch("bf16", bf16)
    configurations = measured(records)
    baseline = {"micro_batch": 1, "accumulation": 1, "precision": "fp32"}
    assert useful_micro_batch(configurations, baseline) == 16
    effects = technique_effects(configurations, baseline, 16)
    (own,) = [effect for effect in effects if effect.axis == "precision"]
    assert (own.micro_batch, own.pairs, own.speed_ratio) == expected
    (largest, *_) = [effect for effect in effects if effect.value == 32]
    assert (largest.micro_batch, largest.speed_ratio) == (None, 4.1)


def test_useful_micro_batch_is_unknown_without_the_baselines_techniques():
    configurations = measured(by_batch("bf16", {1: 10.0}))
    baseline = {"micro_batch": 1, "accumulation": 1, "precision": "fp32"}
    assert useful_micro_batch(configurations, baseline) is None


SGD = TrainingRecipe.of({"optimizer": "sgd"})
ADAFACTOR = TrainingRecipe.of({"optimizer": "adafactor"})
CANDIDATES = [
    ({"micro_batch": 4, "optimizer": "sgd", "precision": "fp32"}, SGD),
    ({"micro_batch": 64, "optimizer": "adamw_torch_fused", "precision": "bf16"}, PLAIN),
    ({"micro_batch": 4, "optimizer": "adafactor", "precision": "bf16"}, ADAFACTOR),
]


def test_ranked_recipe_is_the_nearest_to_the_baseline():
    assert ranked_recipe(CANDIDATES, {"micro_batch": 4, "precision": "bf16"}) == PLAIN
    assert ranked_recipe(CANDIDATES, {"optimizer": "sgd"}) == SGD
    assert ranked_recipe(CANDIDATES[::2], {"optimizer": "adafactor"}) == ADAFACTOR
    assert ranked_recipe([], {}) == PLAIN


def test_baseline_choices_turn_an_effective_batch_into_its_accumulation():
    records = [
        make_record(micro_batch=4, optimizer="sgd"),
        make_record(micro_batch=1, accumulation=4, optimizer="sgd"),
    ]
    choices = baseline_choices(measured(records), {"micro_batch": 1, "effective_batch": 4})
    assert choices == {"micro_batch": 1, "accumulation": 4, "optimizer": "sgd"}
    assert baseline_choices((), {"micro_batch": 1}) == {}
