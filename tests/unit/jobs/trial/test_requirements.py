"""Requirements of techniques, answered for this node."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from jobs.errors import UnsupportedError
from jobs.spec import ModelSpec, TrialSpec
from jobs.trial.requirements import check, unmet_reason
from tests.conftest import build_tiny_spec

EXPERTS_REASON = "LlamaForCausalLM has no experts whose implementation transformers can choose"


def test_check_raises_for_the_first_unmet_requirement() -> None:
    with pytest.raises(UnsupportedError, match="no_such_package is not installed") as caught:
        check(["transformers>=5.0", "package:no_such_package", "nonsense"], build_tiny_spec())
    assert caught.value.rule == "package:no_such_package"


def test_unmet_reason_of_an_unknown_requirement_says_so() -> None:
    reason = unmet_reason("phase of the moon", build_tiny_spec())
    assert reason == "there is no check for the requirement 'phase of the moon'"


@pytest.mark.parametrize(("version", "is_met"), [("5.0", True), ("99.0", False)])
def test_unmet_reason_compares_versions(version: str, is_met: bool) -> None:
    assert (unmet_reason(f"transformers>={version}", build_tiny_spec()) == "") is is_met


def with_dropout(spec: TrialSpec, rate: float) -> TrialSpec:
    config = {**spec.model.config, "attention_probs_dropout_prob": rate}
    return replace(spec, model=replace(spec.model, config=config))


def test_unmet_reason_names_the_models_attention_dropout() -> None:
    spec = build_tiny_spec()
    reason = unmet_reason("no_attention_dropout", with_dropout(spec, 0.1))
    assert "attention_probs_dropout_prob=0.1" in reason
    assert unmet_reason("no_attention_dropout", with_dropout(spec, 0.0)) == ""


@pytest.mark.parametrize(
    ("model", "is_met"),
    [
        (ModelSpec(task="causal-lm", architecture="mixtral"), True),
        (ModelSpec(task="causal-lm", architecture="llama"), False),
    ],
)
def test_unmet_reason_of_experts_names_the_model_without_any(
    model: ModelSpec, is_met: bool
) -> None:
    reason = unmet_reason("experts", replace(build_tiny_spec(), model=model))
    assert reason == ("" if is_met else EXPERTS_REASON)


def test_unmet_reason_of_virtual_tokens_counts_positions() -> None:
    # The tiny model has 16 positions, and its texts as many tokens.
    assert "more than the model's 16 positions" in unmet_reason(
        "virtual_tokens:4", build_tiny_spec()
    )
    rotary = ModelSpec(
        task="causal-lm", architecture="llama", config={"max_position_embeddings": 16}
    )
    assert unmet_reason("virtual_tokens:4", replace(build_tiny_spec(), model=rotary)) == ""
    assert "num_virtual_tokens is missing" in unmet_reason("virtual_tokens:", build_tiny_spec())


def test_unmet_reason_of_a_text_task_is_about_images() -> None:
    image = ModelSpec(task="image-classification", architecture="vit")
    assert "input is an image" in unmet_reason("text_task", replace(build_tiny_spec(), model=image))
    assert unmet_reason("text_task", build_tiny_spec()) == ""


def test_unmet_reason_of_a_hub_kernel_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    reason = unmet_reason("hub_kernel:kernels-community/flash-attn2", build_tiny_spec())
    assert reason == "the package kernels is not installed: pip install kernels"
