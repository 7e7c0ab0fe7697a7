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
        ("attention", "hub_flash_attention_3"),
        ("experts", "grouped_mm"),
        ("base", "bnb_4bit"),
        ("base", "torchao_int8"),
        ("adapter", "vera"),
        ("adapter", "lora(r=16,target_modules=all-linear,use_dora=true)"),
    ],
)
def test_unpredictable_technique_has_a_reason(axis: str, value: str) -> None:
    trials = [trial for trial in TRIALS if trial.choices[axis] == value]
    assert trials
    assert all(map(unpredictable, trials))


def test_unpredictable_is_every_compiled_trial() -> None:
    predictable = {trial.choices["compile"] for trial in TRIALS if not unpredictable(trial)}
    assert predictable == {"none"}


def test_unpredictable_is_neither_a_16_bit_base_nor_plain_lora() -> None:
    predictable = [trial.choices for trial in TRIALS if not unpredictable(trial)]
    assert "16bit" in {choices["base"] for choices in predictable}
    adapters = {choices["adapter"] for choices in predictable}
    assert "lora(r=16,target_modules=all-linear,use_rslora=true)" in adapters
