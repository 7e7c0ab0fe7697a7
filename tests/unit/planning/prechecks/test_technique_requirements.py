"""Techniques that do not go with the model or the data: ruled out before any trial."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.trial.requirements import unmet_reason
from orchestrator.planning import library_facts
from orchestrator.planning.plan import Plan, plan
from orchestrator.planning.prechecks import technique_requirements
from tests.support.config_files import config_of

GPT2 = {"task": "causal-lm", "architecture": "gpt2"}
BERT = {"task": "sequence-classification", "architecture": "bert"}
VIT = {"task": "image-classification", "architecture": "vit"}
CONVNEXT = {"task": "image-classification", "architecture": "convnext"}
LLAMA = {"task": "causal-lm", "architecture": "llama"}
BUDGET = {"activations": "budget_0.5", "compile": "inductor_regional"}
LENGTH = {"synthetic": {"sequence_length": 1020}}


def _planned(folder: Path, model: dict[str, Any], choices: dict[str, Any], **keys: Any) -> Plan:
    return plan(config_of(folder, model=model, trials=[choices], **keys))


def test_model_that_finds_out_itself_whether_it_can_checkpoint_is_not_ruled_out(tmp_path):
    model = {"task": "image-classification", "architecture": "timm_wrapper"}
    assert not _planned(tmp_path, model, {"activations": "checkpoint"}).ruled_out


@pytest.mark.parametrize(
    ("model", "choices", "rule", "reason"),
    [
        (BERT, {"batching": "packed"}, "task:causal-lm", "is for the task causal-lm only"),
        (BERT, {"batching": "padding_free"}, "task:causal-lm", "this one is sequence-class"),
        (BERT, {"loss": "cce"}, "task:causal-lm", "is for the task causal-lm only"),
        (BERT, {"attention": "flex_attention"}, "no_attention_dropout", "=0.1; set it to 0.0"),
        (BERT, BUDGET, "activation_budget", "attention_probs_dropout_prob=0.1; set it to 0.0"),
        (
            BERT | {"config": {"attention_probs_dropout_prob": 0.0}},
            BUDGET,
            "activation_budget",
            "hidden_dropout_prob=0.1",
        ),
        (
            LLAMA,
            BUDGET | {"adapter": "lora(r=8,lora_dropout=0.05)"},
            "activation_budget",
            "lora_dropout=0.05",
        ),
        (VIT, {"adapter": "prompt_tuning(num_virtual_tokens=8)"}, "text_task", "is an image"),
        (CONVNEXT, {"activations": "checkpoint"}, "checkpointing", "convnext does not support"),
        (GPT2, {"adapter": "prompt_tuning"}, "virtual_tokens:", "num_virtual_tokens is missing"),
        (GPT2, {"adapter": "p_tuning(num_virtual_tokens=8)"}, "virtual_tokens:8", "1024 positions"),
    ],
)
def test_technique_that_does_not_go_with_the_model_is_ruled_out(
    model, choices, rule, reason, tmp_path
):
    keys = {"data": LENGTH} if model is GPT2 else {}
    planned = _planned(tmp_path, model, choices, **keys)
    [record] = planned.ruled_out
    assert record.rule == rule
    assert reason in record.reason


@pytest.mark.parametrize(
    "choices",
    [{"batching": "packed"}, {"adapter": "prompt_tuning(num_virtual_tokens=4)"}, {"loss": "cce"}],
)
def test_technique_that_goes_with_the_model_is_planned(choices, tmp_path):
    planned = _planned(tmp_path, GPT2, choices, data=LENGTH)
    assert planned.ruled_out == ()
    [spec] = planned.trials
    # What depends on the machine is left to the node.
    assert any(unmet_reason(each, spec) for each in ("capability>=8.0",))


@pytest.mark.parametrize(("architecture", "is_known"), [("llama", True), ("gpt2", False)])
def test_liger_kernels_are_for_the_architectures_of_its_table(
    architecture, is_known, tmp_path, monkeypatch
):
    known = {**library_facts.facts(), "liger_model_types": ["llama"]}
    monkeypatch.setattr(technique_requirements, "facts", lambda: known)
    model = {"task": "causal-lm", "architecture": architecture}
    planned = _planned(tmp_path, model, {"kernels": "liger"})
    assert bool(planned.trials) is is_known
    reasons = [record.reason for record in planned.ruled_out]
    assert reasons == ([] if is_known else ["Liger has no kernels for the architecture gpt2"])


def test_quantized_checkpoint_needs_an_adapter(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    quantized = {"model_type": "llama", "quantization_config": {"load_in_4bit": True}}
    (checkpoint / "config.json").write_text(json.dumps(quantized))
    model = {"task": "causal-lm", "name_or_path": str(checkpoint)}
    [record] = _planned(tmp_path, model, {}).ruled_out
    assert "quantized weights do not train; choose a technique of the axis adapter" in record.reason
    assert len(_planned(tmp_path, model, {"adapter": "lora_r8"}).trials) == 1
