"""Specs and records as plain JSON values, and read back from them."""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from jobs.spec.recipe import TrainingRecipe

_PLAIN_TYPES = (str, int, float, bool)
T = TypeVar("T")  # the type of a value that is read back


def to_json(value: Any, *, defaults: bool = True) -> Any:
    """Dataclasses, mappings, tuples and training recipes as plain JSON values. Without
    ``defaults``, the fields of dataclasses that are at their default are left out."""
    if value is None or type(value) in _PLAIN_TYPES:
        return value
    if isinstance(value, TrainingRecipe):
        return value.by_axis
    kind: Any = type(value)
    if names := _field_names(kind):
        every = ((name, getattr(value, name)) for name in names)
        kept = dict(every if defaults else changed_fields(value))
        return {name: to_json(item, defaults=defaults) for name, item in kept.items()}
    if isinstance(value, Mapping):
        return {str(key): to_json(item, defaults=defaults) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item, defaults=defaults) for item in value]
    return value


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of ``to_json``. KeyError, TypeError or ValueError for a foreign document."""
    read = _reader(cast(Any, kind))
    assert read is not None
    return cast(T, read(value))


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """A function from a JSON value to one of this type; None: it is the same value."""
    if kind is TrainingRecipe:
        return TrainingRecipe.of
    if _field_names(kind):
        readers = {name: _reader(field) for name, field in get_type_hints(kind).items()}
        known = {name: read for name, read in readers.items() if read is not None}

        def read_fields(value: Any) -> Any:
            read = {name: known[name](value[name]) for name in known.keys() & value.keys()}
            return kind(**{**value, **read})

        return read_fields
    origin, arguments = get_origin(kind), get_args(kind)
    inner = next(filter(None, map(_reader, arguments)), None)
    if origin is UnionType and inner is not None:
        return lambda value: inner(value) if value else None
    if origin in (tuple, list) and inner is not None:
        return lambda value: origin(map(inner, value))
    if origin is tuple:
        return tuple
    if origin is Mapping and inner is not None:
        return lambda value: {name: inner(item) for name, item in value.items()}
    return kind if isinstance(kind, enum.EnumType) else None


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
