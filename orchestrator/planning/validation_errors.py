"""A file's content typed by its schema, or what is wrong with it in words."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.planning.problems import KeyPath, advice, described, named_value
from orchestrator.planning.schema_models import SweepSection

_DISABLE_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_EXPECTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""pydantic's kind of error -> what the key expects."""
_QUOTABLE = ("int_type", "float_type", "bool_type")
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
"""pydantic's kind of error -> its words, and its bound's name in the error's context."""


def section_of(value: Mapping[str, Any]) -> SweepSection | list[tuple[KeyPath, str]]:
    """The typed content of the file, or each place that breaks the schema, with the reason."""
    try:
        with _without_plugins():
            return SweepSection.model_validate(value)
    except ValidationError as error:
        problems: list[tuple[KeyPath, str]] = []
        for detail in error.errors(include_url=False):
            problems.append((tuple(detail["loc"]), _message(dict(detail))))
        return problems


@contextlib.contextmanager
def _without_plugins() -> Iterator[None]:
    """Keep pydantic from asking every installed package for plugins, which takes tens of ms.

    It asks when a model is first used. No plugin could change what a sweep's file means.
    """
    before = os.environ.get(_DISABLE_PLUGINS)
    os.environ[_DISABLE_PLUGINS] = "__all__"
    try:
        yield
    finally:
        # The variable must not reach the trials, whose libraries use pydantic, too.
        os.environ.pop(_DISABLE_PLUGINS, None)
        if before is not None:
            os.environ[_DISABLE_PLUGINS] = before


def _message(detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
    # An unknown key is most often a misspelling of another key of the same section.
    if kind == "extra_forbidden":
        *parents, key = detail["loc"]
        return f"unknown key; {advice(key, list(_keys_at(parents)))}"
    if kind == "missing":
        return "is required"
    return _value_message(kind, detail["input"], detail) or str(detail["msg"])


def _value_message(kind: str, value: Any, detail: Mapping[str, Any]) -> str:
    """What is wrong with a value; empty for a kind of error that has no words of its own."""
    context = detail.get("ctx", {})
    if kind == "literal_error":
        # pydantic lists the choices as 'a', 'b' or 'c'.
        choices = re.findall(r"'([^']*)'", context["expected"])
        return f"{named_value(value)} is not known; {advice(value, choices)}"
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {described(value)}{_quotes_hint(kind, value)}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]}, not {described(value)}"
    if kind == "value_error":
        return _reason(context["error"], value)
    return ""


def _reason(error: ValueError, value: Any) -> str:
    """The sentence of one of our own checks, with the value if it says what the value must be."""
    reason = str(error)
    if reason.startswith("must be"):
        return f"{reason}, not {described(value)}"
    return reason


def _quotes_hint(kind: str, value: Any) -> str:
    if kind not in _QUOTABLE or not isinstance(value, str):
        return ""
    if re.fullmatch(r"[-+\d.]+|true|false", value):
        return "; write it without quotes"
    return ""


def _keys_at(at: list[str | int]) -> Iterator[str]:
    """The keys of the section at a key path."""
    section: type[BaseModel] = SweepSection
    # Walk down the models as pydantic did; the name of an axis is not a key of a model.
    for key in at:
        if key in section.model_fields:
            annotation = section.model_fields[str(key)].annotation
            section = next(_sections_in(annotation), section)
    yield from section.model_fields


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    # Lists, mappings and optional values hold their models as arguments.
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)
