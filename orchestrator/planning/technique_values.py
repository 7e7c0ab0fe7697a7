"""Reads the value of a technique axis: a name, or a name with parameters, in its written form."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.library_facts.value_types import accepts, described_type, listed_values, parameters_of
from jobs.techniques import Axis, Family
from jobs.techniques.written_form import ParametersError, read, written
from orchestrator.planning.library_facts import facts, is_ours
from orchestrator.planning.problems import Remark, advice, described


def read_technique(axis: Axis, value: Any, source: str = "") -> tuple[str, list[Remark]]:
    """The value of a technique axis in its written form, and what is wrong with it.

    ``source`` is the value as the file has it. A mapping ``{lora: {r: 16}}`` and the text
    ``lora(r=16)`` are the same value.
    """
    if isinstance(value, str) and axis.is_name(value):
        return value, []
    if isinstance(value, dict) and axis.families:
        return _read_mapping(axis, value)
    if isinstance(value, str) and axis.families:
        return _read_text(axis, value)
    return "", [Remark((), _unknown_name(axis, value, source))]


def _read_text(axis: Axis, text: str) -> tuple[str, list[Remark]]:
    if "(" not in text and text not in axis.families:
        return "", [Remark((), _unknown_name(axis, text, text))]
    try:
        name, parameters = read(text)
    except ParametersError as error:
        return "", [Remark((), f'"{text}" is not a technique with parameters: {error}')]
    if name not in axis.families:
        return "", [Remark((), _no_family(axis, name))]
    content, mistakes = _read_family(axis, name, parameters)
    # Inside a text there are no keys with lines of their own.
    return content, [Remark((), f"{name}: {mistake.message}") for mistake in mistakes]


def _read_mapping(axis: Axis, value: Mapping[str, Any]) -> tuple[str, list[Remark]]:
    if len(value) != 1:
        example = next(iter(axis.families))
        message = f"must be one name with its parameters, as in {{{example}: {{...}}}}"
        return "", [Remark((), message)]
    ((name, parameters),) = value.items()
    # A YAML key without a value has the value None.
    if parameters is not None and not isinstance(parameters, dict):
        message = f"must be a mapping of parameters, not {described(parameters)}"
        return "", [Remark((name,), message)]
    content, mistakes = _read_family(axis, name, parameters or {})
    return content, [Remark((name, *mistake.at), mistake.message) for mistake in mistakes]


def _read_family(axis: Axis, name: str, parameters: Mapping[str, Any]) -> tuple[str, list[Remark]]:
    family = axis.families.get(name)
    if family is None:
        return "", [Remark((), _no_family(axis, name))]
    types = _types_of(family)
    mistakes = list(_mistakes(family, types, parameters))
    if not mistakes and family.problem is not None and (why := family.problem(parameters)):
        mistakes = [Remark((), why)]
    if mistakes:
        return "", mistakes
    plain = dict(parameters)
    for key, value in parameters.items():
        # 0 and 0.0 would have different written forms.
        if type(value) is int and types.get(key, {}).get("accepts") == ["float"]:
            plain[key] = float(value)
    try:
        return written(name, plain), []
    except ParametersError as error:
        return "", [Remark((), str(error))]


def _no_family(axis: Axis, name: str) -> str:
    """Why a name of an axis takes no parameters."""
    if name in axis.variants:
        takers = ", ".join(axis.families)
        return f"{name} takes no parameters; those that do: {takers}"
    return f'"{name}" is not known; {advice(name, list(axis.families))}'


def _types_of(family: Family) -> Mapping[str, Any]:
    """Parameter -> its type; empty if the library is not installed."""
    if is_ours(family.config_class):
        known = parameters_of(pkgutil.resolve_name(family.config_class))
    else:
        known = facts().get("parameters", {}).get(family.config_class)
    if not known:
        return {}
    return {**known, **{name: described_type(kind) for name, kind in family.extra.items()}}


def _mistakes(
    family: Family, types: Mapping[str, Any], parameters: Mapping[str, Any]
) -> Iterator[Remark]:
    for name, value in parameters.items():
        problem = ""
        if name in family.decided:
            problem = f"cannot be set here: {family.decided[name]}"
        elif types:
            problem = _problem(family, types, name, value)
        if problem:
            yield Remark((name,), problem)


def _problem(family: Family, types: Mapping[str, Any], name: str, value: Any) -> str:
    """Why the library's class does not accept a parameter; empty if it does."""
    class_name = family.config_class.partition(":")[2]
    if name not in types:
        names = sorted(types.keys() - family.decided.keys())
        return f"{class_name} has no such parameter; {advice(name, names)}"
    alternatives = types[name]["accepts"]
    if accepts(alternatives, value):
        return ""
    words = [item for item in listed_values(alternatives) if isinstance(item, str)]
    if isinstance(value, str) and words:
        return f'{class_name} does not know "{value}" here; {advice(value, words)}'
    return f"{class_name} takes {types[name]['text']} here, not {described(value)}"


def _unknown_name(axis: Axis, value: Any, source: str) -> str:
    if isinstance(value, str):
        return _unknown_text(axis, value)
    # YAML 1.1 reads on, off, yes and no as booleans.
    if isinstance(value, bool):
        return (
            f"YAML reads {source} as {described(value)}, and this axis takes names; valid choices: "
            f"{', '.join(axis.names)}"
        )
    return f"must be a name, not {described(value)}; {advice(source, axis.names)}"


def _unknown_text(axis: Axis, text: str) -> str:
    """What to write instead of a text that is no value of the axis."""
    if axis.takes_integers:
        names = " or ".join(axis.variants)
        hint = "; write it without quotes" if text.isdecimal() else ""
        return f'must be an integer from 1 or {names}, not the text "{text}"{hint}'
    if axis.pattern is not None and text.startswith(axis.pattern.form.partition("<")[0]):
        # The first clause of its description says which numbers there are.
        numbers = axis.pattern.doc.partition(";")[0].replace("`", "")
        return f'"{text}" is not known; write {axis.pattern.form}: {numbers}'
    problem = f'"{text}" is not known; {advice(text, axis.names)}'
    families = [name for name in axis.families if text.startswith(name)]
    if not families:
        return problem
    # A question ends a sentence, so the next clause then begins a new one.
    joint = " With" if problem.endswith("?") else "; with"
    return f"{problem}{joint} parameters of your own: {max(families, key=len)}(name=value)"
