"""Sequences beyond a model's table of positions."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel

from orchestrator.prediction.tracing.rows.batches import BatchShapes, why_beyond

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def _why(architecture: str, config: Mapping[str, Any], tokens: int) -> str:
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(architecture, **config))
    shape = torch.empty((2, tokens), dtype=torch.int64)
    return why_beyond(
        model, BatchShapes(tensors={"input_ids": shape, "labels": shape}, is_padded=False)
    )


@pytest.mark.parametrize(
    ("architecture", "config", "positions"),
    [
        ("bert", {**SMALL, "max_position_embeddings": 128}, 128),
        (
            "gpt2",
            {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64},
            64,
        ),
        # Its table begins after the padding token's row: 130 rows, padding token 1.
        ("roberta", {**SMALL, "max_position_embeddings": 130, "pad_token_id": 1}, 128),
        # Two rows more than positions, which are left out.
        (
            "opt",
            {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
            64,
        ),
    ],
)
def test_one_token_more_than_positions_is_refused_with_the_number(architecture, config, positions):
    assert _why(architecture, config, positions) == ""
    reason = _why(architecture, config, positions + 1)
    assert f"{positions + 1} tokens" in reason
    assert f"positions for {positions}" in reason


def test_rotary_positions_have_no_end():
    config = {**SMALL, "intermediate_size": 64, "max_position_embeddings": 16}
    assert _why("llama", config, 64) == ""
