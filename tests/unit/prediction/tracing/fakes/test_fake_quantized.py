"""Bases in 4 and 8 bits: what bitsandbytes packs, and the peaks that an H200 measured."""

from unittest.mock import Mock

import pytest
import torch

from jobs.techniques.hooks import bound
from jobs.trial import models
from jobs.trial.weight_formats import storage_bytes, stored_tensors
from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.streams.affine_stream import Allocation
from orchestrator.prediction.tracing.fake_step import FakeStep
from orchestrator.storage.tables.table_reader import read_trials_file
from tests.support.commands import ROOT
from tests.support.config_files import config_of

H200 = load_gpu("h200")
RECORDED = ROOT / "docs/results/2026-11-24-grids-h200/lora/trials.parquet"
SMALL = """
model:
  task: causal-lm
  architecture: llama
  config: {hidden_size: 256, intermediate_size: 704, num_hidden_layers: 2, vocab_size: 512}
baseline: {adapter: lora_r8_all_linear}
"""
LORA_3B = """
model:
  task: causal-lm
  architecture: llama
  config:
    hidden_size: 3072
    intermediate_size: 8192
    num_hidden_layers: 28
    num_attention_heads: 24
    num_key_value_heads: 8
    vocab_size: 128256
    max_position_embeddings: 2048
    tie_word_embeddings: true
data: {synthetic: {sequence_length: 2048, samples: 128}}
baseline: {adapter: lora_r8_all_linear, base: bnb_4bit(upcast=false), precision: bf16}
"""


@pytest.mark.parametrize(
    "base",
    ["bnb_4bit", "bnb_4bit(upcast=false)", "bnb_4bit(bnb_4bit_use_double_quant=false)", "bnb_8bit"],
)
def test_traced_weights_are_those_that_bitsandbytes_packs(tmp_path, base):
    (spec,) = plan(config_of(tmp_path, SMALL, axes={"base": base})).trials
    built = models.build(spec.model, {}, torch.device("cpu"), place=bound(spec, "base"))
    change = bound(spec, "model")
    assert change is not None
    adapted = change(built, "causal-lm", Mock(activation_checkpointing_kwargs={}))
    tensors = [own for part in adapted.parameters() for own in stored_tensors(part)]
    events = FakeStep(spec, H200).weights.events
    kept = [own for own in events if isinstance(own, Allocation) and own.kind == "weights"]
    traced = sum(sum(own.integers) for own in kept)
    assert traced == pytest.approx(storage_bytes(tensors), rel=0.01)


@pytest.mark.parametrize("base", ["bnb_4bit", "bnb_8bit"])
def test_dora_dequantizes_its_base(tmp_path, base):
    lora = {"target_modules": ["o_proj", "down_proj"]}
    adapters = [{"lora": lora}, {"lora": {**lora, "use_dora": True}}]
    axes = {"base": base, "adapter": adapters, "precision": "bf16"}
    text = SMALL.replace("baseline: {adapter: lora_r8_all_linear}", "")
    plain, dora = predict(plan(config_of(tmp_path, text, axes=axes)).trials, H200)
    assert (plain.unknown, dora.unknown) == ("", "")
    assert plain.allocated.bytes < dora.allocated.bytes


@pytest.mark.slow
def test_predicted_peak_of_a_4_bit_base_is_that_an_h200_measured(tmp_path):
    axes = {"micro_batch": 4, "activations": "keep", "loss": "plain"}
    chosen = {**axes, "base": "bnb_4bit(upcast=false)"}
    rows = read_trials_file(RECORDED).rows
    (row,) = [own for own in rows if all(own[axis] == chosen[axis] for axis in chosen)]
    (own,) = predict(plan(config_of(tmp_path, LORA_3B, axes=axes)).trials, H200)
    assert own.allocated is not None, own.unknown
    assert own.allocated.bytes == pytest.approx(row["peak_allocated_bytes"], rel=0.001)
    assert own.device.low <= row["device_peak_bytes"] <= own.device.high
