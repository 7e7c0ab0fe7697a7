"""Trials of which nothing is predicted."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.spec import TrialSpec
from orchestrator.planning.config import load_config
from orchestrator.planning.plan import plan
from orchestrator.prediction.unsupported import unpredictable
from tests.conftest import build_tiny_spec
from tests.support.vision_models import tiny_vision_model

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
        ("optimizer", "muon"),
        ("activations", "checkpoint_offload"),
        ("attention", "hub_flash_attention_3"),
        ("base", "bnb_4bit"),
        ("base", "torchao_int8"),
        ("adapter", "vera"),
        ("adapter", "lora(r=16,target_modules=all-linear,use_dora=true)"),
    ],
)
def test_unpredictable_technique_has_a_reason(axis, value):
    trials = [trial for trial in TRIALS if trial.choices[axis] == value]
    assert trials
    assert all(map(unpredictable, trials))


def test_unpredictable_are_experts_that_the_user_chooses(tmp_path):
    config = tmp_path / "mixture.yaml"
    config.write_text(
        "model: {task: causal-lm, architecture: olmoe}\naxes: {experts: [auto, grouped_mm]}\n"
    )
    plain, grouped = plan(load_config(config)).trials
    assert not unpredictable(plain)
    assert unpredictable(grouped)


def test_unpredictable_is_every_compiled_trial():
    predictable = {trial.choices["compile"] for trial in TRIALS if not unpredictable(trial)}
    assert predictable == {"none"}


def test_unpredictable_is_neither_a_16_bit_base_nor_plain_lora():
    predictable = [trial.choices for trial in TRIALS if not unpredictable(trial)]
    assert "16bit" in {choices["base"] for choices in predictable}
    adapters = {choices["adapter"] for choices in predictable}
    assert "lora(r=16,target_modules=all-linear,use_rslora=true)" in adapters


def trial(**choices: str) -> TrialSpec:
    return build_tiny_spec(choices)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"compile": "inductor_regional"}, "torch.compile plans its own buffers"),
        ({"compile": "inductor_regional", "loss": "chunked"}, "torch.compile plans"),
        ({"loss": "liger"}, "kernels of this loss"),
        ({"loss": "cce"}, "kernels of this loss"),
        ({"kernels": "liger"}, "kernels of Liger"),
        ({"kernels": "hub"}, "kernels of Liger and of the Hub"),
        ({"activations": "offload"}, "offloading keeps is not traced"),
        ({"base": "16bit_fp16", "adapter": "lora_r8"}, "a base in this format"),
        ({"trainable": "matching(patterns=[classifier])"}, "some of the model's own weights"),
        ({"qat": "int8_int4"}, "rounded linear layers"),
        ({"allocator": "expandable_segments"}, "default settings"),
        ({"allocator": "roundup_power2", "loss": "chunked"}, "default settings"),
        ({"activations": "checkpoint_selective"}, "selective checkpointing"),
        ({"loop": "trl_sft"}, "TRL computes the loss"),
        ({"loop": "trl_dpo", "adapter": "lora_r8"}, "reference model"),
    ],
)
def test_unpredictable_says_why_a_decoder_technique_is_not_predicted(choices, reason):
    assert reason in unpredictable(trial(**choices))


def test_super_offload_of_an_own_deepspeed_file_is_not_predicted():
    spec = trial(offload="zero3_cpu_optimizer")
    assert not unpredictable(spec)
    config: dict[str, Any] = copy.deepcopy(dict(spec.settings.deepspeed or {}))
    config["zero_optimization"]["offload_optimizer"]["super_offload"] = True
    settings = replace(spec.settings, deepspeed=config)
    assert "SuperOffload" in unpredictable(replace(spec, settings=settings))


def test_images_with_texts_are_not_predicted():
    spec = replace(trial(), model=tiny_vision_model("llava"))
    assert "image positions depend on" in unpredictable(spec)


def test_chunked_loss_of_eager_code_is_predicted():
    assert not unpredictable(trial(loss="chunked"))
