"""What a compiler saves of a repeated block, against what it saved on a GPU."""

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import quiet_libraries, traced_step
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.shared import Shared
from orchestrator.prediction.tracing.compiled_block import compiled_block
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.units import MIB
from tests.support.config_files import config_of

VIT = """
model:
  task: image-classification
  architecture: vit
  config: {hidden_size: 1024, intermediate_size: 4096, num_attention_heads: 16,
           num_hidden_layers: 2}
data: {synthetic: {samples: 64}}
axes: {micro_batch: [64], precision: [bf16]}
"""
MEASURED = {1.0: 14.08, 0.8: 10.15, 0.5: 8.98, 0.3: 7.35, 0.1: 5.77}
"""Budget of activations -> allocated peak in GiB of ViT-large's 24 layers at micro-batch 64, one
H200: docs/results/2026-11-26-tune_vit-h200 and 2026-11-24-grids-h200/vit."""


def test_partition_of_a_block_saves_what_a_gpu_measured(tmp_path):
    [spec] = plan(config_of(tmp_path, VIT)).trials
    known = {}
    with quiet_libraries():
        step = FakeStep(spec, load_gpu("h200"))
        block = compiled_block(step, step.batches.worst(64), known)
        assert compiled_block(step, step.batches.worst(64), known) is block
    saved = {budget: block.saved_bytes(budget) * 24 / (1024 * MIB) for budget in MEASURED}
    for budget in (0.5, 0.3, 0.1):
        freed = MEASURED[0.8] - MEASURED[budget]
        assert saved[0.8] - saved[budget] == pytest.approx(freed, rel=0.1)
    # Without a budget, temporary buffers of a pass add to what is saved.
    assert saved[1.0] - saved[0.8] == pytest.approx(MEASURED[1.0] - MEASURED[0.8], abs=0.5)


DECODER = """
model:
  task: causal-lm
  architecture: llama
  config: {hidden_size: 512, intermediate_size: 1024, num_attention_heads: 8,
           num_key_value_heads: 8, num_hidden_layers: 2, vocab_size: 1024}
data: {synthetic: {sequence_length: 256}}
resources: {gpus_per_trial: 2}
axes: {micro_batch: [4], precision: [bf16], sharding: [ddp, fsdp2_full, fsdp2_grad_op]}
"""


def test_block_saves_its_activations_whether_ranks_share_its_parameters_or_not(tmp_path):
    gpu, saved = load_gpu("h200"), {}
    for spec in plan(config_of(tmp_path, DECODER), has_gpu=True).trials:
        with quiet_libraries(), traced_step(spec, gpu, Shared()) as step:
            block = compiled_block(step.shallow, step.batches.worst(4), {})
            saved[spec.choices["sharding"]] = block.saved_bytes(1.0)
    whole = saved.pop("ddp")
    # FSDP2 gives a block its input in bf16, and autocast in the model's own 32 bits.
    assert [own / whole for own in saved.values()] == pytest.approx([0.93, 0.93], abs=0.05)
