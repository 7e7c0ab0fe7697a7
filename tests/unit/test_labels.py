"""How a configuration is named."""

from __future__ import annotations

import pytest

from jobs.spec import PLAIN, TrainingRecipe
from orchestrator.labels import batch_label, label, recipe_label

ALL = ("micro_batch", "accumulation", "precision", "optimizer", "activations")
CHOICES = {
    "micro_batch": 64,
    "accumulation": 1,
    "precision": "bf16",
    "optimizer": "adamw_torch_fused",
    "activations": "keep",
    "learning_rate": 0.1,
}


@pytest.mark.parametrize(
    ("changes", "axes", "text"),
    [
        ({}, ALL, "batch 64×1 · bf16 · adamw_torch_fused"),
        ({}, ("micro_batch", "activations"), "batch 64"),
        ({"activations": "checkpoint"}, ("micro_batch", "activations"), "batch 64 · checkpoint"),
        ({"accumulation": 4}, ("micro_batch",), "batch 64×4"),
        ({"accumulation": 4}, ("precision",), "batch 64×4 · bf16"),
        ({"accumulation": 4}, ("effective_batch", "precision"), "batch 64×4 · bf16"),
        ({"accumulation": None}, ("micro_batch", "accumulation"), "batch 64"),
        ({}, ("learning_rate",), "learning_rate=0.1"),
        ({}, ("activations",), "default"),
        ({"attention": "eager"}, ("attention",), "attention eager"),
        ({"compile": "eager"}, ("compile",), "compile eager"),
    ],
)
def test_label_names_what_varies_and_departs_from_the_default(
    changes: dict[str, object], axes: tuple[str, ...], text: str
) -> None:
    assert label({**CHOICES, **changes}, axes) == text  # type: ignore[dict-item]


def test_batch_label_always_names_an_accumulation() -> None:
    assert batch_label({"micro_batch": 8, "accumulation": 2}, ()) == "batch 8×2"
    assert batch_label({"micro_batch": 8, "accumulation": 1}, ()) == ""


def test_recipe_label_lists_choices_in_a_fixed_order() -> None:
    recipe = TrainingRecipe.of({"optimizer": "sgd", "adapter": "lora_r8"})
    assert recipe_label(recipe) == "adapter=lora_r8 · optimizer=sgd"
    assert recipe_label(PLAIN) == "plain"
