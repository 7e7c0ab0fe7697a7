"""Techniques with parameters of the user's own, checked against the classes of their libraries."""

import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.library_facts.value_types import accepts, described_type, listed_values, parameters_of
from jobs.techniques import Axis, Family
from jobs.techniques.written_form import ParametersError, read, written
from orchestrator.planning.library_facts import facts, is_ours
from orchestrator.planning.problems import Remark, advice, closest, described


def read_family(axis: Axis, value: Mapping[str, Any] | str) -> tuple[str, list[Remark]]:
    """A family with its parameters in its written form, and what is wrong with it. A mapping
    ``{lora: {r: 16}}`` and the text ``lora(r=16)`` are the same value."""
    return _read_text(axis, value) if isinstance(value, str) else _read_mapping(axis, value)


def _read_text(axis: Axis, text: str) -> tuple[str, list[Remark]]:
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
    class_name = family.config_class.partition(":")[2]
    if name not in types:
        names = sorted(types.keys() - family.decided.keys())
        # Other trainers call it lora_rank, or lora_target.
        short = name.removeprefix("lora_")
        word = "r" if short in ("r", "rank") else short if closest(short, names) else name
        return f"{class_name} has no such parameter; {advice(word, names)}"
    alternatives = types[name]["accepts"]
    if accepts(alternatives, value):
        return ""
    words = [item for item in listed_values(alternatives) if isinstance(item, str)]
    if isinstance(value, str) and words:
        return f'{class_name} does not know "{value}" here; {advice(value, words)}'
    return f"{class_name} takes {types[name]['text']} here, not {described(value)}"
