"""Requirements of techniques, answered for this node."""

import importlib.util
from dataclasses import replace

import pytest

from jobs.errors import UnsupportedError
from jobs.trial.requirements import check, unmet_reason
from tests.conftest import build_tiny_spec


def test_check_raises_for_the_first_unmet_requirement():
    with pytest.raises(UnsupportedError, match="no_such_package is not installed") as caught:
        check(["transformers>=5.0", "package:no_such_package", "nonsense"], build_tiny_spec())
    assert caught.value.rule == "package:no_such_package"


NO_EXPERTS = "LlamaForCausalLM has no experts whose implementation transformers can choose"


@pytest.mark.parametrize(
    ("requirement", "model", "reason"),
    [
        ("phase of the moon", {}, "there is no check for the requirement 'phase of the moon'"),
        ("transformers>=5.0", {}, ""),
        ("transformers>=99.0", {}, "needs transformers 99.0 or newer"),
        ("no_attention_dropout", {"config": {"attention_probs_dropout_prob": 0.0}}, ""),
        ("no_attention_dropout", {}, "the model asks for attention_probs_dropout_prob=0.1"),
        ("experts", {"task": "causal-lm", "architecture": "mixtral"}, ""),
        ("experts", {"task": "causal-lm", "architecture": "llama"}, NO_EXPERTS),
        # The tiny model has 16 positions, and its texts as many tokens.
        ("virtual_tokens:4", {}, "more than the model's 16 positions"),
        ("virtual_tokens:4", {"task": "causal-lm", "architecture": "llama"}, ""),
        ("virtual_tokens:", {}, "num_virtual_tokens is missing"),
        ("text_task", {"task": "image-classification", "architecture": "vit"}, "is an image"),
        ("task:image-text-to-text", {}, "it is for the task image-text-to-text only"),
        ("text_task", {}, ""),
    ],
)
def test_unmet_reason_is_of_this_model_and_node(requirement, model, reason):
    spec = build_tiny_spec()
    if model:
        config = {} if "task" in model else spec.model.config
        changed = {**model, "config": {**config, **model.get("config", {})}}
        spec = replace(spec, model=replace(spec.model, **changed))
    unmet = unmet_reason(requirement, spec)
    assert reason in unmet
    assert bool(unmet) is bool(reason)


def test_unmet_reason_of_a_hub_kernel_without_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = unmet_reason("hub_kernel:kernels-community/flash-attn2", build_tiny_spec())
    assert reason == "the package kernels is not installed: pip install kernels"
