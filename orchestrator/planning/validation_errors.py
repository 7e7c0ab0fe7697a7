"""A file's content typed by its shape, or what is wrong with it in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.planning.problems import KeyPath, advice, described
from orchestrator.planning.schema_models import SweepSection


def shape_of(value: dict[str, Any]) -> SweepSection | list[tuple[KeyPath, str]]:
    """The file's content, typed; or where it has another shape, and what is wrong there."""
    try:
        return SweepSection.model_validate(value)
    except ValidationError as error:
        return [
            (tuple(found["loc"]), _message(dict(found)))
            for found in error.errors(include_url=False)
        ]


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
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than": ("below", "lt"),
}


def _message(found: dict[str, Any]) -> str:
    kind, given, context = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {advice(found['loc'][-1], list(_fields(SweepSection, found['loc'][:-1])))}"
    if kind == "missing":
        return "is required"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        word = f'"{given}"' if isinstance(given, str) else described(given)
        return f"{word} is not known; {advice(given, choices)}"
    if kind in _EXPECTED:
        quoted = isinstance(given, str) and kind in ("int_type", "float_type", "bool_type")
        hint = (
            "; write it without quotes"
            if quoted and re.fullmatch(r"[-+\d.]+|true|false", given)
            else ""
        )
        return f"must be {_EXPECTED[kind]}, not {described(given)}{hint}"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        return f"must be {words} {context[bound]}, not {described(given)}"
    if kind == "value_error":
        reason = str(context["error"])
        return f"{reason}, not {described(given)}" if reason.startswith("must be") else reason
    return str(found["msg"])


def _fields(section: type[BaseModel], at: tuple[str | int, ...]) -> Iterator[str]:
    """The keys of the section that stands at ``at``."""
    for part in at:
        if part in section.model_fields:
            section = next(_sections(section.model_fields[str(part)].annotation), section)
    yield from section.model_fields


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)
