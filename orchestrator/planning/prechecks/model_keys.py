"""Checks ``model.config`` against the configuration class of the installed transformers.

transformers accepts any key and drops those that it does not know. So a misspelt size would
silently keep its default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.planning.prechecks.model_configuration import (
    ConfigurationClass,
    ModelConfiguration,
)
from orchestrator.planning.problems import KeyPath, advice, closest

_QUANTIZATION = "quantization_config"
_SYNONYMS = (
    ("hidden_size", "d_model", "n_embd", "n_embed", "dim", "embed_dim", "model_dim"),
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "layers", "depth"),
    ("num_attention_heads", "num_heads", "n_head", "n_heads", "heads"),
    ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    ("intermediate_size", "d_ff", "n_inner", "hidden_dim", "ffn_dim", "mlp_dim"),
    (
        "max_position_embeddings",
        "n_positions",
        "n_ctx",
        "max_seq_len",
        "max_length",
        "max_sequence_length",
    ),
    ("vocab_size", "vocabulary_size", "n_vocab"),
    ("num_labels", "n_labels", "num_classes"),
)
"""Names that architectures and papers give to the same size."""
_NO_QUANTIZATION = (
    "would be dropped in silence: weights are trained as they are, never quantized; remove it, and "
    "see the axes optimizer, adapter and precision for what saves memory"
)


def model_key_problems(
    configuration: ModelConfiguration, keys: Mapping[str, Any], at: KeyPath = ()
) -> Iterator[tuple[KeyPath, str]]:
    """Those of the keys that the configuration would drop.

    Yields the path of each key below ``model.config``, and a sentence.
    """
    known = configuration.known
    if known is None:
        return
    for key, value in keys.items():
        if key in known.parts:
            # null means the defaults; transformers itself refuses any other value.
            if isinstance(value, Mapping):
                rest = {name: item for name, item in value.items() if name != "model_type"}
                yield from model_key_problems(configuration.part(key, value), rest, (*at, key))
        elif key == _QUANTIZATION:
            yield (*at, key), _NO_QUANTIZATION
        elif key not in known.keys and key not in known.source.get("names", ()):
            yield (*at, key), _unknown(known, key)


def _unknown(known: ConfigurationClass, key: str) -> str:
    name = known.name
    hint = advice(key, sorted(known.keys))
    synonym = _synonym(key, known.keys)
    if synonym:
        hint = f'did you mean "{synonym}"?'
    return f"{name} has no such key, and transformers would drop it in silence; {hint}"


def _synonym(key: str, keys: frozenset[str]) -> str:
    """The class's own name for a size that others call ``key``; empty if it has none."""
    for names in _SYNONYMS:
        candidates = [name for name in names if name in keys]
        if key in names and candidates:
            # Some classes take two of the names. Suggest the one that resembles the key.
            return closest(key, candidates) or candidates[0]
    return ""
