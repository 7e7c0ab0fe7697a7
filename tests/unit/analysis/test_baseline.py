"""What techniques are compared with."""

from __future__ import annotations

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.analysis.baseline import baseline_choices, ranked_recipe
from tests.support.configurations import measured
from tests.support.records import make_record

SGD = TrainingRecipe.of({"optimizer": "sgd"})
ADAFACTOR = TrainingRecipe.of({"optimizer": "adafactor"})
CANDIDATES = [
    ({"micro_batch": 4, "optimizer": "sgd", "precision": "fp32"}, SGD),
    ({"micro_batch": 64, "optimizer": "adamw_torch_fused", "precision": "bf16"}, PLAIN),
    ({"micro_batch": 4, "optimizer": "adafactor", "precision": "bf16"}, ADAFACTOR),
]


def test_ranked_recipe_is_the_nearest_to_the_baseline() -> None:
    assert ranked_recipe(CANDIDATES, {"micro_batch": 4, "precision": "bf16"}) == PLAIN
    assert ranked_recipe(CANDIDATES, {"optimizer": "sgd"}) == SGD
    assert ranked_recipe(CANDIDATES[::2], {"optimizer": "adafactor"}) == ADAFACTOR
    assert ranked_recipe([], {}) == PLAIN


def test_baseline_choices_turn_an_effective_batch_into_its_accumulation() -> None:
    records = [
        make_record(micro_batch=4, optimizer="sgd"),
        make_record(micro_batch=1, accumulation=4, optimizer="sgd"),
    ]
    choices = baseline_choices(measured(records), {"micro_batch": 1, "effective_batch": 4})
    assert choices == {"micro_batch": 1, "accumulation": 4, "optimizer": "sgd"}
    assert baseline_choices((), {"micro_batch": 1}) == {}
