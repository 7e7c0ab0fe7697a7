"""Which of the model's own weights are trained, and weights that learn to be quantized."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from jobs.errors import classify
from jobs.finetuning.qat import fake_quantized_linears
from jobs.finetuning.trained_weights import trained_weights
from jobs.record import Outcome
from jobs.techniques import AXES
from jobs.trial.effective_code import code
from tests.support.tiny_decoders import TOKENS, checkpointed, decoder

PLAIN = SimpleNamespace(gradient_checkpointing_kwargs=None)


def trained_names(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_trained_weights_are_those_that_a_pattern_matches_anywhere() -> None:
    model = trained_weights(
        decoder(), "causal-lm", PLAIN, patterns=[r"layers\.1\.mlp", r"^lm_head"]
    )
    ends = ("gate_proj", "up_proj", "down_proj")
    layer = {f"model.layers.1.mlp.{end}.weight" for end in ends}
    assert trained_names(model) == {*layer, "lm_head.weight"}
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    with_gradients = {name for name, item in model.named_parameters() if item.grad is not None}
    assert with_gradients == trained_names(model)


def test_trained_weights_below_reentrant_checkpointing_get_gradients() -> None:
    model = checkpointed(decoder(), use_reentrant=True)
    arguments = SimpleNamespace(gradient_checkpointing_kwargs={"use_reentrant": True})
    trained_weights(model, "causal-lm", arguments, patterns=[r"layers\.0\."])
    model(input_ids=TOKENS, labels=TOKENS).loss.backward()
    assert all(item.grad is not None for item in model.parameters() if item.requires_grad)


@pytest.mark.parametrize(
    ("patterns", "reason"),
    [
        (["lm_head", "no_such"], "no_such"),
        ([], "no parameter"),
        (["("], "is not a regular expression"),
    ],
)
def test_pattern_without_a_match_is_refused(patterns: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        trained_weights(decoder(), "causal-lm", PLAIN, patterns=patterns)


SCHEMES = [name for name in AXES["qat"].variants if name not in ("none", "nvfp4")]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_qat_rounds_every_layer_but_the_output_and_trains(scheme: str) -> None:
    pytest.importorskip("torchao")
    sizes = {"hidden_size": 128, "intermediate_size": 256}
    plain = decoder(**sizes).to(torch.bfloat16)
    model = fake_quantized_linears(
        decoder(**sizes).to(torch.bfloat16), "causal-lm", None, scheme=scheme
    )
    row = code(model)
    assert (row["fake_quantized_linears"], row["linear_layers"]) == (14, 15)
    outputs = model(input_ids=TOKENS, labels=TOKENS)
    assert not torch.equal(outputs.logits, plain(input_ids=TOKENS).logits)
    outputs.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    # The weights themselves keep their format.
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_qat_group_size_is_that_of_the_parameter() -> None:
    pytest.importorskip("torchao")
    hook = AXES["qat"].variant("int8_int4(group_size=16)").hooks["rounding"]
    model = fake_quantized_linears(decoder(), "causal-lm", None, **hook.arguments)
    layer = model.model.layers[0].mlp.up_proj
    assert layer.weight_fake_quantizer.config.group_size == 16


def test_qat_of_layers_smaller_than_a_group_is_unsupported() -> None:
    pytest.importorskip("torchao")
    with pytest.raises(ValueError, match="multiple of 512") as caught:
        fake_quantized_linears(decoder(), "causal-lm", None, scheme="int4", group_size=512)
    assert classify(caught.value)[0] is Outcome.UNSUPPORTED
