"""The types of parameters as JSON values: a list of alternatives, of which a value has one.

An alternative is the name of a plain type, ``{"values": [...]}`` for the values of a ``Literal``,
``{"list": alternatives}`` or ``{"dict": alternatives}`` for a container whose items are known, or
"any" for a type that is not one of Python's own.
"""

import collections.abc
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

Alternatives = Sequence[Any]

_NAMES: Mapping[Any, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    types.NoneType: "null",
    dict: "dict",
    collections.abc.Mapping: "dict",
    **dict.fromkeys((list, tuple, set, collections.abc.Sequence), "list"),
}
"""Type -> its name; a configuration file writes lists for tuples and sets."""
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "null": (types.NoneType,),
    "dict": (dict,),
    "list": (list,),
}


def parameters_of(kind: type) -> dict[str, Any]:
    """Parameter of a class's constructor -> its type, as text and as alternatives."""
    parameters = {}
    inherited = _fields_of_another_library(kind)
    # The fields of a dataclass may be declared in several modules.
    hints = {**_hints(kind), **_hints(kind.__init__)}  # type: ignore[misc]
    for name, parameter in inspect.signature(kind).parameters.items():
        takes_any = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if takes_any or name in inherited:
            continue
        annotation = parameter.annotation
        if annotation is parameter.empty:
            # A default suggests a type; 0 may stand for any number.
            default = type(parameter.default)
            annotation = {bool: bool, int: float, float: float, str: str}.get(default, Any)
            hints[name] = annotation
        parameters[name] = described_type(hints.get(name, Any), annotation)
    return parameters


def _fields_of_another_library(kind: type) -> set[str]:
    """The fields that a class only inherits from a class of another library."""
    declared: dict[bool, set[str]] = {True: set(), False: set()}
    for base in kind.__mro__:
        is_own = base.__module__.partition(".")[0] == kind.__module__.partition(".")[0]
        declared[is_own].update(vars(base).get("__annotations__", ()))
    return declared[False] - declared[True]


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):  # an annotation has a name that is not known at run time
        return {}


def described_type(kind: Any, annotation: Any = None) -> dict[str, Any]:
    """A type as text and as alternatives. The text is that of its annotation in the source."""
    text = annotation
    if not isinstance(annotation, str):
        text = inspect.formatannotation(kind).replace("typing.", "").replace("NoneType", "None")
    return {"text": text, "accepts": list(_alternatives(kind))}


def _alternatives(kind: Any) -> Iterator[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _alternatives(argument)
    elif origin is Annotated:
        yield from _alternatives(arguments[0])
    elif origin is Literal:
        yield {"values": list(arguments)}
    else:
        name = _NAMES.get(origin or kind, "any")
        # The items of a tuple have a type each.
        if name in ("list", "dict") and arguments and origin is not tuple:
            yield {name: list(_alternatives(arguments[-1]))}
        else:
            yield name


def accepts(alternatives: Alternatives, value: Any) -> bool:
    """Whether a value of a configuration file is of one of the alternatives."""
    return any(_accepts(alternative, value) for alternative in alternatives)


def _accepts(alternative: Any, value: Any) -> bool:
    match alternative:
        case "any":
            return True
        case {"values": values}:
            # By type, too: to Python 1 and True are equal.
            return any(type(value) is type(item) and value == item for item in values)
        case {"list": items}:
            return isinstance(value, list) and all(accepts(items, item) for item in value)
        case {"dict": items}:
            return isinstance(value, dict) and all(accepts(items, value[key]) for key in value)
    # To Python a boolean is an integer.
    if isinstance(value, bool):
        return bool(alternative == "bool")
    return isinstance(value, _PLAIN[alternative])


def listed_values(alternatives: Alternatives) -> Iterator[Any]:
    """The values that the alternatives list one by one, inside containers, too."""
    for alternative in alternatives:
        if isinstance(alternative, dict):
            ((kind, content),) = alternative.items()
            yield from content if kind == "values" else listed_values(content)
