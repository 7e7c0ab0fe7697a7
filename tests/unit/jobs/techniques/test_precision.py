"""Linear layers in FP8, converted on the CPU; only a GPU can multiply them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from jobs.errors import classify
from jobs.record import Outcome
from jobs.techniques.axes.precision import float8_linears
from jobs.trial.effective_code import code


def model(architecture: str, auto_class: str, **config: Any) -> Any:
    """A tiny model of random weights."""
    full = transformers.AutoConfig.for_model(architecture, **config)
    return getattr(transformers, auto_class).from_config(full)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_float8_linears_of_a_decoder_are_all_but_the_output_layer(recipe: str) -> None:
    config = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    decoder = model("llama", "AutoModelForCausalLM", **config)
    converted = float8_linears(decoder, "causal-lm", None, recipe=recipe)
    row = code(converted)
    assert (row["float8_linears"], row["linear_layers"]) == (14, 15)
    assert type(converted.lm_head) is torch.nn.Linear


def test_float8_linears_leaves_layers_that_tensor_cores_do_not_take() -> None:
    config = {
        "hidden_size": 40,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 64,
    }
    classifier = model("bert", "AutoModelForSequenceClassification", **config)
    with pytest.raises(ValueError, match="does not support FP8") as caught:
        float8_linears(classifier, "sequence-classification", None, recipe="rowwise")
    assert classify(caught.value)[0] is Outcome.UNSUPPORTED
