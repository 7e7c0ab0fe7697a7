"""A tiny decoder: its sizes, its spec, and the model itself with random weights."""

from typing import Any

import torch
import transformers

from jobs.spec import ModelSpec, RowLengthDistribution, SyntheticData

LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODEL = ModelSpec(task="causal-lm", architecture="llama", config=LLAMA)
RAGGED = SyntheticData(
    sequence_length=32, samples=40, lengths=RowLengthDistribution(distribution="lognormal", mean=12)
)
PADDED = SyntheticData(sequence_length=32, samples=40, padding=0.3)
TOKENS = torch.arange(2, 34).reshape(2, 16)


def decoder(architecture: str = "llama", **config: Any) -> Any:
    """A model in training; the same weights in each call."""
    torch.manual_seed(0)
    full = transformers.AutoConfig.for_model(architecture, **{**LLAMA, **config})
    return transformers.AutoModelForCausalLM.from_config(full).train()


def checkpointed(model: Any, *, use_reentrant: bool = False) -> Any:
    """The model with checkpointing, by the name that this transformers has for it."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    (enable or model.gradient_checkpointing_enable)({"use_reentrant": use_reentrant})
    return model
