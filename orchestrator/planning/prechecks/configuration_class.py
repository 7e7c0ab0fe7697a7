"""The configuration classes of the installed transformers: their keys, defaults and parts."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.planning.library_facts import facts


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigurationClass:
    """A configuration class and all it inherits."""

    name: str
    keys: frozenset[str]
    """The keys that its constructor uses, under each of their names."""
    defaults: Mapping[str, Any]
    """Key -> its default, if that is a plain value."""
    other_names: Mapping[str, str]
    """The common name of a key -> the class's own, as ``hidden_size`` -> ``n_embd``."""
    parts: Mapping[str, str]
    """Key -> the class of the configuration below it; empty if that depends on the model."""
    model: Mapping[str, Any]
    """What the source of the architecture says; see ``jobs.library_facts.collected``."""

    def value(self, name: str, given: Mapping[str, Any]) -> Any:
        """A key's value under both its names: as given, else its default; None if unknown."""
        names = sorted({name, self.other_names.get(name, name)})
        for values in (given, self.defaults):
            for key in names:
                if key in values:
                    return values[key]
        return None


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
    defaults = {**facts()["common_defaults"], **known["defaults"]}
    return ConfigurationClass(
        name=name,
        keys=frozenset(
            {*facts()["common_keys"], *known["keys"], *known["defaults"], *known["other_names"]}
        ),
        defaults=defaults,
        other_names=known["other_names"],
        parts=known["parts"],
        model=facts()["models"].get(known["module"], {}),
    )
