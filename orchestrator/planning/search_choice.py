"""The config's choice of a search, checked against the table of kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.planning.problems import KeyPath, advice, described, named_value
from orchestrator.planning.search_kinds import DEFAULT_KIND, SEARCH_KINDS, SearchOption
from orchestrator.planning.settings import SearchChoice

_REMOVED_KIND = "optuna"
_REMOVED_OPTIONS = ("sampler", "share")
_REMOVED = 'the search "optuna" was removed; use frontier, which finds more with fewer trials'


def search_of(value: Any) -> SearchChoice:
    """The search that a checked value names. Options that are not given have their defaults."""
    kind, given = _kind_and_options(value)
    options = {name: option.default for name, option in SEARCH_KINDS[kind].options.items()}
    return SearchChoice(kind=kind, options={**options, **given})


def search_problems(value: Any) -> Iterator[tuple[KeyPath, str]]:
    """The problems of the value of the key ``search``: the key path, and a sentence."""
    if not isinstance(value, (str, Mapping)):
        yield ("search",), f"must be a kind of search or a mapping, not {described(value)}"
        return
    kind, given = _kind_and_options(value)
    problem = _kind_problem(kind)
    if problem:
        yield _path_of_kind(value), problem
        return
    # The options of an unknown kind cannot be checked, so this comes after the kind.
    for name, option_value in given.items():
        problem = _option_problem(kind, name, option_value)
        if problem:
            yield ("search", name), problem


def _path_of_kind(value: Any) -> KeyPath:
    """The path of the kind: the key ``search`` itself, or ``kind`` below it."""
    if isinstance(value, str):
        return ("search",)
    return ("search", "kind")


def _kind_problem(kind: Any) -> str:
    if kind == _REMOVED_KIND:
        return _REMOVED
    if isinstance(kind, str) and kind in SEARCH_KINDS:
        return ""
    return f"{named_value(kind)} is not known; {advice(kind, list(SEARCH_KINDS))}"


def _kind_and_options(value: Any) -> tuple[Any, dict[str, Any]]:
    if not isinstance(value, Mapping):
        return value, {}
    options = dict(value)
    return options.pop("kind", DEFAULT_KIND), options


def _option_problem(kind: str, name: str, value: Any) -> str:
    options = SEARCH_KINDS[kind].options
    if name in options:
        return _value_problem(options[name], value)
    if name in _REMOVED_OPTIONS:
        return _REMOVED
    # An option of another kind of search is not a misspelling.
    owners = [other for other, row in SEARCH_KINDS.items() if name in row.options]
    if owners:
        return f"only search: {{kind: {' or '.join(owners)}}} has this"
    return f"unknown key; {advice(name, ['kind', *options])}"


def _value_problem(option: SearchOption, value: Any) -> str:
    if option.type is bool:
        if isinstance(value, bool):
            return ""
        return f"must be true or false, not {described(value)}"
    # An integer counts as a number. A boolean does not, although Python makes it an integer.
    is_number = isinstance(value, int) or (option.type is float and isinstance(value, float))
    expected = ""
    if is_number and not isinstance(value, bool):
        expected = _broken_bound(option, value)
    elif option.type is int:
        expected = "an integer"
    else:
        expected = "a number"
    if not expected:
        return ""
    return f"must be {expected}, not {described(value)}"


def _broken_bound(option: SearchOption, value: float) -> str:
    """The bound that a number breaks, in words; NaN breaks every bound."""
    # Each test is negated, so that NaN fails: every comparison with NaN is false.
    if not value >= option.minimum:
        return f"at least {option.minimum:g}"
    if option.maximum is not None and not value <= option.maximum:
        return f"at most {option.maximum:g}"
    if option.below is not None and not value < option.below:
        return f"below {option.below:g}"
    return ""


def search_schema() -> dict[str, Any]:
    """The JSON schema of the key: a kind by name, or a mapping of a kind and its options."""
    names = []
    mappings = []
    for kind, row in SEARCH_KINDS.items():
        names.append({"const": kind, "description": row.doc})
        properties = {name: _option_schema(option) for name, option in row.options.items()}
        mapping: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {"kind": {"const": kind, "description": row.doc}, **properties},
        }
        # A mapping without a kind means the default kind, so only other kinds must be named.
        if kind != DEFAULT_KIND:
            mapping["required"] = ["kind"]
        mappings.append(mapping)
    return {"anyOf": [*names, *mappings], "default": DEFAULT_KIND}


def _option_schema(option: SearchOption) -> dict[str, Any]:
    if option.type is bool:
        return {"type": "boolean", "description": option.doc, "default": option.default}
    json_type = "number"
    if option.type is int:
        json_type = "integer"
    schema: dict[str, Any] = {
        "type": json_type,
        "description": option.doc,
        "default": option.default,
        "minimum": option.minimum,
    }
    if option.maximum is not None:
        schema["maximum"] = option.maximum
    if option.below is not None:
        schema["exclusiveMaximum"] = option.below
    return schema
