"""Predicting shows how far it is, because a trace takes seconds."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.planning.plan import plan
from orchestrator.prediction import estimator
from orchestrator.prediction.gpus import load_gpu
from tests.benchmarks.grids import make_spec
from tests.support.config_files import config_of


def test_predictions_are_counted_as_they_come(monkeypatch):
    def traced(group: list[Any], *_: Any) -> list[list[Any]]:
        return [[SimpleNamespace(trial_id=spec.trial_id)] for spec in group]

    monkeypatch.setattr(estimator, "predictions", traced)
    trials = [make_spec({"micro_batch": size, "accumulation": 1}) for size in (1, 2, 4)]
    seen: list[tuple[int, int]] = []
    gpu: Any = None
    found = estimator.predict(trials, gpu, lambda *counts: seen.append(counts))
    assert [own.trial_id for own in found] == [spec.trial_id for spec in trials]
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_trials_of_one_memory_have_their_own_steps(tiny_spec):
    choices: Any = {"precision": "tf32", "optimizer": "adamw_torch"}
    techniques: Any = ({"precision": "fp32"}, {}, {"compile": "inductor"})
    specs = [tiny_spec({**choices, **own}) for own in techniques]
    plain, tf32, compiled = estimator.predict(specs, load_gpu("h200"))
    assert plain.device is not None
    assert (plain.device, compiled.device) == (tf32.device, None)
    steps = [own.step for own in (plain, tf32, compiled) if own.step]
    assert [own.formats for own in steps] == [{}, {"fp32": "tf32"}, {"fp32": "tf32"}]
    assert [own.is_compiled for own in steps] == [False, False, True]


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
def test_quick_prediction_is_that_of_the_longest_rows(tmp_path, data):
    gpu = load_gpu("h200")
    quick = estimator.quick_predictions(plan(config_of(tmp_path, MODEL + data)).trials, gpu)
    whole = estimator.predict(plan(config_of(tmp_path, MODEL + EQUAL)).trials, gpu)
    for own, other in zip(quick, whole, strict=True):
        assert own.device.bytes == pytest.approx(other.device.bytes, rel=0.05)
