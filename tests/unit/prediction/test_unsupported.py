"""Trials of which nothing is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.unsupported import unpredictable

ROOT = Path(__file__).parents[3]
TRIALS = plan(load_config(ROOT / "configs/all_techniques.yaml")).trials


@pytest.mark.parametrize(
    ("axis", "value"),
    [
        ("compile", "inductor"),
        ("attention", "flash_attention_2"),
        ("attention", "sdpa_cudnn"),
        ("offload", "zero3_nvme_both"),
        ("optimizer", "galore_adamw"),
        ("optimizer", "adamw_torch_8bit"),
        ("activations", "checkpoint_offload"),
    ],
)
def test_unpredictable_technique_has_a_reason(axis: str, value: str) -> None:
    (trial,) = (trial for trial in TRIALS if trial.choices[axis] == value)
    assert unpredictable(trial)


def test_unpredictable_is_every_compiled_trial() -> None:
    predictable = {trial.choices["compile"] for trial in TRIALS if not unpredictable(trial)}
    assert predictable == {"none"}
