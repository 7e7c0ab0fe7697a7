"""Specs and records as plain JSON values, with or without the fields at their default."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.spec.recipe import TrainingRecipe

_PLAIN_TYPES = (str, int, float, bool)


def to_json(value: Any) -> Any:
    """Dataclasses, mappings, tuples and training recipes as plain JSON values."""
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, TrainingRecipe):
        return value.by_axis
    kind: Any = type(value)
    if names := _field_names(kind):
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def without_defaults(value: Any) -> Any:
    """``to_json`` without the dataclass fields that are at their default."""
    kind: Any = type(value)
    if _field_names(kind):
        return {name: without_defaults(item) for name, item in changed_fields(value)}
    if isinstance(value, Mapping):
        return {str(key): without_defaults(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_defaults(item) for item in value]
    return to_json(value)


def changed_fields(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass that differ from their default, with their values."""
    kind: Any = type(value)
    defaults = _field_defaults(kind)
    for name in _field_names(kind):
        item = getattr(value, name)
        if name not in defaults or item != defaults[name]:
            yield name, item


@functools.cache
def _field_defaults(kind: Any) -> dict[str, Any]:
    """Field -> default, for the fields of a dataclass that have one."""
    defaults = {}
    for declared in dataclasses.fields(kind):
        if declared.default is not dataclasses.MISSING:
            defaults[declared.name] = declared.default
        elif declared.default_factory is not dataclasses.MISSING:
            defaults[declared.name] = declared.default_factory()
    return defaults


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass in their order; empty for any other class."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(declared.name for declared in dataclasses.fields(kind))
