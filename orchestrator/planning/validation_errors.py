"""A file's content typed by its schema, or what is wrong with it in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.planning.problems import KeyPath, advice, described
from orchestrator.planning.schema_models import SweepSection

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
    """The file's content, typed; or where it breaks the schema, and what is wrong there."""
    try:
        return SweepSection.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
        return [(tuple(detail["loc"]), _message(dict(detail))) for detail in details]


def _message(detail: Mapping[str, Any]) -> str:
    kind = detail["type"]
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
        return _not_a_choice(value, re.findall(r"'([^']*)'", context["expected"]))
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {described(value)}{_quotes_hint(kind, value)}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]}, not {described(value)}"
    if kind == "value_error":
        reason = str(context["error"])
        return f"{reason}, not {described(value)}" if reason.startswith("must be") else reason
    return ""


def _not_a_choice(value: Any, choices: list[str]) -> str:
    shown = f'"{value}"' if isinstance(value, str) else described(value)
    return f"{shown} is not known; {advice(value, choices)}"


def _quotes_hint(kind: str, value: Any) -> str:
    looks_unquoted = isinstance(value, str) and re.fullmatch(r"[-+\d.]+|true|false", value)
    return "; write it without quotes" if kind in _QUOTABLE and looks_unquoted else ""


def _keys_at(at: list[str | int]) -> Iterator[str]:
    """The keys of the section at a key path."""
    section: type[BaseModel] = SweepSection
    for key in at:
        if key in section.model_fields:
            annotation = section.model_fields[str(key)].annotation
            section = next(_sections_in(annotation), section)
    yield from section.model_fields


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)
