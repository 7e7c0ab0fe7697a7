"""The Hugging Face guides' published table."""

from __future__ import annotations

from orchestrator.analysis.published_guide import guide, published


def test_published_figures_need_every_choice_to_be_the_guides() -> None:
    lean = {"micro_batch": 1, "accumulation": 4, "activations": "checkpoint", "precision": "fp16"}
    row = published({**lean, "optimizer": "adafactor"})
    assert (row.seconds, row.samples_per_second, row.memory_mib) == (56.54, 9.06, 4847)
    assert published({"micro_batch": 4, "precision": "bf16"}) is None
    assert published({"micro_batch": 4, "attention": "eager"}) is None
    assert published({"micro_batch": 4, "learning_rate": 1e-3}) is None


def test_published_figures_are_found_for_optimizers_that_stand_for_another() -> None:
    assert published({"micro_batch": 4, "optimizer": "adamw_torch"}) == guide().rows[0]
    assert [row for row in guide().rows if published(row.choices) is not row] == []
