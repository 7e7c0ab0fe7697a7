"""Which combinations of decoder techniques are invalid, and by which rule."""

from collections.abc import Mapping

import pytest
import yaml

from jobs.spec import Choice
from jobs.techniques import AXES
from orchestrator.planning.validity import RULES, traits_of

CASES = """
optimizer: adafactor, offload: zero2_cpu_optimizer -> offloaded_optimizer_is_cpu_adam
optimizer: galore_adamw, offload: zero2 -> low_rank_needs_matrices
optimizer: muon, offload: zero0 -> muon_without_deepspeed
optimizer: apollo_adamw_layerwise, accumulation: 2 -> layerwise_without_accumulation
optimizer: lomo, offload: zero0 -> lomo_without_deepspeed
optimizer: adalomo, precision: fp16 -> lomo_without_loss_scaling
optimizer: lomo, loop: accelerate -> lomo_needs_trainer
optimizer: schedule_free_sgd, loop: accelerate -> schedule_free_needs_trainer
offload: zero2, loop: accelerate -> plain_loop_without_deepspeed
compile: inductor, loop: accelerate -> plain_loop_is_eager
attention: flash_attention_2, precision: tf32 -> flash_attention_in_16_bits
activations: budget_0.5 -> activation_budget_needs_compilation
activations: budget_0.33, compile: eager -> activation_budget_needs_compilation
activations: budget_0.5, compile: cudagraphs -> activation_budget_needs_compilation
activations: budget_0.5, compile: inductor -> valid
activations: budget_0.5, compile: inductor_regional -> valid
activations: budget_0.5, compile: aot_eager_regional -> valid
activations: checkpoint_selective, compile: inductor_regional -> selective_checkpointing_of_whole_graphs
activations: checkpoint, compile: inductor_regional -> valid
activations: checkpoint_selective -> valid
activations: offload, compile: inductor_regional -> offloaded_activations_of_compiled_code
activations: offload, compile: inductor -> offloaded_activations_of_compiled_code
activations: offload -> valid
activations: checkpoint_offload_streams, compile: inductor_regional -> offloaded_activations_of_compiled_code
activations: checkpoint_offload_streams -> valid
offload: zero2, compile: inductor_regional -> regions_without_deepspeed
loss: chunked, compile: inductor_regional -> valid
loss: liger, kernels: liger -> valid
attention: flash_attention_2 -> flash_attention_in_16_bits
attention: flash_attention_2, precision: fp16_weights -> valid
precision: fp16_weights, base: 16bit_fp16, adapter: lora_r8 -> base_sets_the_weights
precision: fp16, base: 16bit_fp16, adapter: lora_r8 -> valid
trainable: "matching(patterns=[lm_head])", adapter: lora_r8 -> adapter_freezes_the_models_own_weights
trainable: "matching(patterns=[lm_head])" -> valid
qat: mxfp4, adapter: lora_r8 -> qat_trains_the_models_own_weights
qat: int8_int4, precision: fp8_rowwise -> qat_without_fp8_products
qat: mxfp4, activations: checkpoint_offload_streams, loss: liger -> valid
base: bnb_4bit -> base_needs_adapter
base: 16bit -> base_needs_adapter
base: 16bit, adapter: lora_r8, precision: bf16_weights -> base_sets_the_weights
base: 16bit, adapter: lora, precision: bf16 -> valid
base: bnb_8bit, adapter: lora_r8, precision: bf16 -> valid
base: bnb_4bit, adapter: lora_r8, offload: zero3 -> quantized_base_without_zero3
adapter: "prefix_tuning(num_virtual_tokens=4)", activations: checkpoint -> key_value_prefix_without_checkpointing
"""  # noqa: E501 - choices and their rule on a line
"""Choices -> the rules against them."""


def rules_against(choices: Mapping[str, Choice]) -> set[str]:
    """The names of the rules that forbid these choices; other axes keep their default."""
    chosen = {axis.name: axis.default for axis in AXES.values()} | dict(choices)
    variants = {name: AXES[name].variant(value) for name, value in chosen.items()}
    traits = traits_of(chosen, variants)
    return {rule.name for rule in RULES if rule.applies(traits)}


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_rules_forbid_combination_that_cannot_train(case):
    choices, _, rule = case.partition(" -> ")
    assert rules_against(yaml.safe_load(f"{{{choices}}}")) == {rule} - {"valid"}


@pytest.mark.parametrize("loss", ["chunked", "liger", "cce"])
def test_fused_loss_is_forbidden_with_zero3_only(loss):
    for name, variant in AXES["offload"].variants.items():
        stage = ((variant.deepspeed or {}).get("zero_optimization") or {}).get("stage")
        rules = rules_against({"offload": name, "loss": loss})
        assert ("fused_loss_needs_whole_weights" in rules) == (stage == 3), name
