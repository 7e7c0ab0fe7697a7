"""What each configuration class of the installed transformers takes."""

import contextlib
import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any

_FROM_KWARGS = re.compile(r'\bkwargs\.(?:pop|get)\(\s*"(\w+)"')
"""A key that a constructor takes out of its ``**kwargs``."""
_ROTARY_KEYS = frozenset({"rope_scaling", "rope_theta", "partial_rotary_factor"})
"""Keys that a class with ``rope_parameters`` moves into it; other classes ignore them."""


class Configurations:
    """The configuration classes of all model types, and of the parts of their configurations."""

    def __init__(self) -> None:
        from transformers import CONFIG_MAPPING, AutoConfig
        from transformers.configuration_utils import PreTrainedConfig

        self.by_name: dict[str, dict[str, Any]] = {}
        """Name of a class -> its facts, without the keys and defaults that all classes have."""
        self.of_model_type: dict[str, str] = {}  # model type -> name of its class
        self._mapping = CONFIG_MAPPING
        self._auto = AutoConfig
        self.common_keys = _keys(PreTrainedConfig)
        self.common_defaults = _defaults(PreTrainedConfig)
        for model_type in CONFIG_MAPPING.keys():  # noqa: SIM118, it is no mapping
            self.of_model_type[model_type] = self._add(CONFIG_MAPPING[model_type])

    def _add(self, kind: type) -> str:
        """Add a class and those of its parts. Returns its name."""
        name = kind.__name__
        if name in self.by_name:
            return name
        common = self.common_defaults
        defaults = {
            key: value
            for key, value in _defaults(kind).items()
            if key not in common or value != common[key]
        }
        other_names: dict[str, str] = dict(kind.attribute_map)  # type: ignore[attr-defined]
        keys = _keys(kind) - defaults.keys() - other_names.keys() - self.common_keys
        facts: dict[str, Any] = {
            "module": kind.__module__.removeprefix("transformers.models.").partition(".")[0],
            "defaults": defaults,
            "other_names": other_names,
            "keys": sorted(keys),
        }
        self.by_name[name] = facts
        facts["parts"] = dict(self._parts(kind))
        return name

    def _parts(self, kind: Any) -> Iterator[tuple[str, str]]:
        """Key -> class of the configuration below it; empty if the class depends on the model."""
        # transformers 5.23 says more of each part than its class.
        parts = getattr(kind, "sub_configs_defaults", None) or kind.sub_configs
        for key, part in parts.items():
            part_class = getattr(part, "config_class", part)
            model_type: Any = getattr(part, "model_type", None)
            if part_class is not self._auto:
                yield key, self._add(part_class)
            elif model_type in self._mapping:
                yield key, self._add(self._mapping[model_type])
            else:
                yield key, ""


def _keys(kind: type) -> set[str]:
    fields = {field.name for field in dataclasses.fields(kind)}
    keys = set(fields)
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, property) and member.fset and not name.startswith("_"):
                keys.add(name)
            if name in ("__init__", "__post_init__"):
                keys |= _constructor_keys(member)
    if "rope_parameters" in fields:
        return keys | _ROTARY_KEYS
    return keys - (_ROTARY_KEYS - fields)


@functools.cache
def _constructor_keys(function: Any) -> frozenset[str]:
    """Parameters of a constructor, and what it takes out of ``**kwargs``."""
    keys = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            keys.add(parameter.name)
    with contextlib.suppress(OSError, TypeError):  # a decorator's function has no source
        keys |= set(_FROM_KWARGS.findall(inspect.getsource(function)))
    return frozenset(key for key in keys if key != "self" and not key.startswith("_"))


def _defaults(kind: type) -> dict[str, Any]:
    fields = dataclasses.fields(kind)
    return {field.name: field.default for field in fields if is_plain(field.default)}


def is_plain(value: Any) -> bool:
    """Whether JSON can write a value as it is."""
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
