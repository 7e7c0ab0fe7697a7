"""Peaks that an H200 measured, of techniques whose libraries are traced as they are."""

import importlib.util

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.unsupported import triton_libraries
from tests.support.config_files import config_of

DECODER = """
model:
  task: causal-lm
  architecture: llama
  config:
    vocab_size: 64000
    hidden_size: 1280
    intermediate_size: 3456
    num_hidden_layers: 10
    num_attention_heads: 20
    num_key_value_heads: 4
    max_position_embeddings: 4096
data: {synthetic: {sequence_length: 1024, samples: 64}}
baseline: {precision: bf16, micro_batch: 4}
"""
CHECKPOINTED = {"activations": "checkpoint", "micro_batch": 8}
MEASURED = [
    ({"loss": "cce"}, 7_786_127_360, 9_266_069_504),
    ({"loss": "cce", **CHECKPOINTED}, 5_814_016_000, 7_118_585_856),
    (
        {"loss": "cce", "adapter": "lora_r8_all_linear", "base": "16bit"},
        3_376_598_528,
        4_430_036_992,
    ),
    ({"loss": "cce", "kernels": "liger"}, 7_058_612_224, 8_410_431_488),
    ({"activations": "checkpoint_selective"}, 8_729_149_440, 10_989_928_448),
    ({"activations": "offload"}, 7_980_752_896, 10_113_318_912),
    (
        {"activations": "checkpoint_offload_streams", "micro_batch": 8},
        10_627_799_040,
        13_632_339_968,
    ),
    ({"qat": "int8_int4"}, 13_305_151_488, 15_356_198_912),
    ({"qat": "fp8"}, 19_368_796_160, 21_324_693_504),
]
"""Choices -> the bytes of tensors at their peak, and those of the whole GPU (2026-11-30, torch
2.11.0, transformers 5.17.0)."""


@pytest.mark.slow
@pytest.mark.parametrize(("choices", "allocated", "device"), MEASURED, ids=lambda own: str(own))
def test_predicted_peaks_are_those_that_an_h200_measured(tmp_path, choices, allocated, device):
    (spec,) = plan(config_of(tmp_path, DECODER, trials=[choices])).trials
    if not all(map(importlib.util.find_spec, triton_libraries(spec))):
        pytest.skip("its library is not installed")
    (own,) = predict([spec], load_gpu("h200"))
    assert own.allocated is not None, own.unknown
    assert own.allocated.bytes == pytest.approx(allocated, rel=0.004)
    assert own.device.low <= device <= own.device.high
