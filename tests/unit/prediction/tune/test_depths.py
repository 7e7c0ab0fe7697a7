"""Memory of deep models from few layers."""

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction.estimator import predict
from orchestrator.prediction.gpus import load_gpu
from orchestrator.prediction.tune.depths import quick_predictions
from tests.support.config_files import config_of

MODEL = """
model:
  task: causal-lm
  architecture: llama
  config:
    hidden_size: 1024
    intermediate_size: 2816
    num_attention_heads: 8
    num_hidden_layers: 8
    vocab_size: 8192
axes: {micro_batch: [1, 4]}
"""
EQUAL = "data: {synthetic: {sequence_length: 512, samples: 40, padding: 0.5}}"
UNEQUAL = "data: {synthetic: {sequence_length: 512, samples: 40, lengths: {mean: 400}}}"


@pytest.mark.parametrize("data", [EQUAL, UNEQUAL])
def test_quick_prediction_is_near_that_of_the_longest_rows(tmp_path, data):
    gpu = load_gpu("h200")
    quick = quick_predictions(plan(config_of(tmp_path, MODEL + data)).trials, gpu)
    whole = predict(plan(config_of(tmp_path, MODEL + EQUAL)).trials, gpu)
    for own, other in zip(quick, whole, strict=True):
        assert own.device.bytes == pytest.approx(other.device.bytes, rel=0.05)
