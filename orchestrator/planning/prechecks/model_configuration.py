"""The configuration of a model: what is given, and what its class in transformers adds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.spec import ModelSpec
from orchestrator.planning.library_facts import facts
from orchestrator.planning.prechecks import checkpoints
from orchestrator.planning.problems import KeyPath, KeyProblems, advice, closest, did_you_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigurationClass:
    """A configuration class of the installed transformers, and all it inherits."""

    name: str
    keys: frozenset[str]
    """The keys that its constructor uses, under each of their names."""
    defaults: Mapping[str, Any]
    """Key -> its default, if that is a plain value."""
    other_names: Mapping[str, str]
    """The common name of a key -> the class's own, as ``hidden_size`` -> ``n_embd``."""
    parts: Mapping[str, str]
    """Key -> the class of the configuration below it; empty if that depends on the model."""
    source: Mapping[str, Any]
    """What the source of the architecture says; see ``jobs.library_facts.collected``."""


def model_types() -> Mapping[str, str]:
    """Every model type -> the name of its class; empty if transformers is not installed."""
    return facts().get("model_types", {})


@functools.cache
def configuration_class(name: str) -> ConfigurationClass | None:
    """The class of a model type, or of a name such as CLIPTextConfig; None if there is none."""
    name = model_types().get(name, name)
    known = facts().get("configurations", {}).get(name)
    if known is None:
        return None
    own_keys = (known["keys"], known["defaults"], known["other_names"])
    return ConfigurationClass(
        name=name,
        keys=frozenset(facts()["common_keys"]).union(*own_keys),
        defaults={**facts()["common_defaults"], **known["defaults"]},
        other_names=known["other_names"],
        parts=known["parts"],
        source=facts()["models"].get(known["module"], {}),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfiguration:
    """A model's configuration, as far as text and files tell it."""

    model_type: str = ""
    """Empty if the checkpoint's configuration is not on this machine."""
    given: Mapping[str, Any]
    """The keys that are not at their defaults."""
    known: ConfigurationClass | None
    """None if transformers is not installed, or has no such model type."""

    @classmethod
    def of(cls, model: ModelSpec) -> ModelConfiguration:
        """The configuration of an architecture, or of a checkpoint with its overrides."""
        model_type: object = model.architecture
        given = model.config
        if model.name_or_path is not None:
            saved = checkpoints.checkpoint_config(model.name_or_path) or {}
            model_type = saved.get("model_type")
            if isinstance(model_type, str):
                given = {**saved, **given}
        name = model_type if isinstance(model_type, str) else ""
        return cls(model_type=name, given=given, known=configuration_class(name))

    def value(self, key: str) -> Any:
        """The value under a key such as ``vocab_size`` or ``vision_config.patch_size``.

        It is the given value under any name of the key, else the default of the class. None: it is
        not known from the text alone. That is so for every value of a part that is not given,
        because the code of some architectures makes such a part.
        """
        part, _, below = key.partition(".")
        if below:
            values = self.given.get(part)
            return self.part(part, values).value(below) if isinstance(values, Mapping) else None
        if self.known is None:
            return self.given.get(key)
        names = sorted({key, self.known.other_names.get(key, key)})
        sources = (self.given, self.known.defaults)
        found = (values[name] for values in sources for name in names if name in values)
        return next(found, None)

    def part(self, key: str, values: Mapping[str, Any]) -> ModelConfiguration:
        """The configuration under a key, of its own model type or of what its class says."""
        parts = self.known.parts if self.known is not None else {}
        model_type = str(values.get("model_type", parts.get(key, "")))
        known = configuration_class(model_type)
        return ModelConfiguration(model_type=model_type, given=values, known=known)

    @property
    def labels(self) -> int | None:
        """The number of classes; None if it is not known."""
        if self.known is None:
            return None
        names = self.given.get("id2label")
        default = len(names) if isinstance(names, Mapping) else 2  # transformers' default
        return _integer(self.given.get("num_labels", default))

    @property
    def vocabulary(self) -> int | None:
        """The number of token ids; None if it is not known."""
        return _integer(self.value("vocab_size"))

    def usable_positions(self) -> int | None:
        """Tokens that a sequence may have; None without a table of positions (T5, rotary), or
        unknown."""
        positions = _integer(self.value("max_position_embeddings"))
        if self.known is None or "rope_parameters" in self.known.keys or positions is None:
            return None
        if not self.known.source.get("has_position_table"):
            return None
        if self.known.source["counts_from_padding"]:
            # The first token has the position after the padding token's.
            positions -= 1 + (_integer(self.value("pad_token_id")) or 0)
        return positions

    def trained_positions(self) -> int | None:
        """Tokens that a model with rotary positions was made for; None for every other."""
        is_rotary = self.known is not None and "rope_parameters" in self.known.keys
        return _integer(self.value("max_position_embeddings")) if is_rotary else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None


_SYNONYMS = """
hidden_size d_model n_embd n_embed dim embed_dim model_dim
num_hidden_layers num_layers n_layer n_layers layers depth
num_attention_heads num_heads n_head n_heads heads
num_key_value_heads num_kv_heads n_kv_heads
intermediate_size d_ff n_inner hidden_dim ffn_dim mlp_dim
max_position_embeddings n_positions n_ctx max_seq_len max_length max_sequence_length
vocab_size vocabulary_size n_vocab
num_labels n_labels num_classes
"""
"""Names that architectures and papers give to the same size, a line for each size."""
_NO_QUANTIZATION = (
    "would be dropped in silence: weights are trained as they are, never quantized; remove it, and "
    "see the axes base and adapter for quantized weights under an adapter"
)


def model_key_problems(
    configuration: ModelConfiguration, keys: Mapping[str, Any], at: KeyPath = ()
) -> KeyProblems:
    """Those of the keys, as paths below ``model.config``, that the configuration would drop."""
    known = configuration.known
    if known is None:
        return
    for key, value in keys.items():
        if key in known.parts:
            # null means the defaults; transformers itself refuses any other value.
            if isinstance(value, Mapping):
                rest = {name: item for name, item in value.items() if name != "model_type"}
                yield from model_key_problems(configuration.part(key, value), rest, (*at, key))
        elif key == "quantization_config":
            yield (*at, key), _NO_QUANTIZATION
        elif key not in known.keys and key not in known.source.get("names", ()):
            yield (*at, key), _unknown(known, key)


def _unknown(known: ConfigurationClass, key: str) -> str:
    synonym = _synonym(key, known.keys)
    hint = did_you_mean(synonym) if synonym else advice(key, sorted(known.keys))
    return f"{known.name} has no such key, and transformers would drop it in silence; {hint}"


def _synonym(key: str, keys: frozenset[str]) -> str:
    """The class's own name for a size that others call ``key``; empty if it has none."""
    sizes = map(str.split, _SYNONYMS.splitlines())
    candidates = [name for names in sizes if key in names for name in names if name in keys]
    # Some classes take two of the names. Suggest the one that resembles the key.
    return closest(key, candidates) or next(iter(candidates), "")
