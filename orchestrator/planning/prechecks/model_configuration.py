"""The configuration of a model: what is given, and what its class in transformers adds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.spec import ModelSpec
from orchestrator.planning.library_facts import facts
from orchestrator.planning.prechecks import checkpoints

_DEFAULT_LABELS = 2
"""Number of classes of a model whose configuration names none, as in transformers."""
_POSITIONS = "max_position_embeddings"


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
    names: Mapping[str, str] = facts().get("model_types", {})
    return names


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
        if not isinstance(model_type, str):
            model_type = ""
        return cls(model_type=model_type, given=given, known=configuration_class(model_type))

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
        for values in (self.given, self.known.defaults):
            for name in names:
                if name in values:
                    return values[name]
        return None

    def part(self, key: str, values: Mapping[str, Any]) -> ModelConfiguration:
        """The configuration under a key, of its own model type or of what its class says."""
        parts = self.known.parts if self.known is not None else {}
        model_type = str(values.get("model_type", parts.get(key, "")))
        known = configuration_class(model_type)
        return ModelConfiguration(model_type=model_type, given=values, known=known)

    @property
    def labels(self) -> int | None:
        """The number of classes; None if it is not known."""
        names = self.given.get("id2label")
        if self.known is None:
            return None
        if isinstance(names, Mapping) and "num_labels" not in self.given:
            return len(names)
        count = self.given.get("num_labels", _DEFAULT_LABELS)
        return count if isinstance(count, int) else None

    @property
    def vocabulary(self) -> int | None:
        """The number of token ids; None if it is not known."""
        count = self.value("vocab_size")
        return count if isinstance(count, int) else None

    def usable_positions(self) -> int | None:
        """Tokens that a sequence may have.

        None if the model has no table of positions (T5), may go beyond what it was trained for
        (rotary positions), or is not known.
        """
        positions = self.value(_POSITIONS)
        if self.known is None or "rope_parameters" in self.known.keys:
            return None
        if not self.known.source.get("has_position_table") or not isinstance(positions, int):
            return None
        if self.known.source["counts_from_padding"]:
            # The first token has the position after the padding token's.
            token = self.value("pad_token_id")
            positions -= 1 + (token if isinstance(token, int) else 0)
        return positions

    def trained_positions(self) -> int | None:
        """Tokens that a model with rotary positions was made for; None for every other."""
        if self.known is None or "rope_parameters" not in self.known.keys:
            return None
        positions = self.value(_POSITIONS)
        return positions if isinstance(positions, int) else None
