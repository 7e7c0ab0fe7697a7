"""Whether a plain value is of the type that an annotation in a library's source names."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PLAIN: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list,),
    "List": (list,),
    "Sequence": (list,),
    "tuple": (list,),
    "Tuple": (list,),
    "set": (list,),
    "dict": (dict,),
    "Dict": (dict,),
    "Mapping": (dict,),
    "None": (type(None),),
}
"""Name of a type -> what a config file writes for it."""


def accepts(annotation: ast.expr | None, value: Any) -> bool:
    """Whether a parameter with this annotation takes the value.

    A type that is not one of Python's own takes any value: its library decides.
    """
    match annotation:
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str() as text):
            return accepts(ast.parse(text, mode="eval").body, value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _is_instance(value, name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return accepts(left, value) or accepts(right, value)
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return _accepts_subscript(name, _elements(annotation.slice), value)
        case _:
            return True


def converted(annotation: ast.expr | None, value: Any) -> Any:
    """The value as a config should hold it: 0 becomes 0.0 if the annotation is ``float``."""
    is_float = isinstance(annotation, ast.Name) and annotation.id == "float"
    if is_float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def listed_values(annotation: ast.expr) -> list[Any]:
    """The values that an annotation lists one by one, in any ``Literal`` inside it."""
    values = []
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and _name_of(node.value) == "Literal":
            items = _elements(node.slice)
            values += [item.value for item in items if isinstance(item, ast.Constant)]
    return values


def _name_of(node: ast.expr) -> str:
    """The last part of a name: ``Literal`` of ``typing.Literal``; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_instance(value: Any, name: str) -> bool:
    types = _PLAIN.get(name)
    if types is None:
        return True
    # To Python a boolean is an integer.
    if isinstance(value, bool):
        return bool in types
    return isinstance(value, types)


def _accepts_subscript(name: str, elements: Sequence[ast.expr], value: Any) -> bool:
    if name == "Union":
        return any(accepts(element, value) for element in elements)
    if name == "Optional":
        return value is None or accepts(elements[0], value)
    if name == "Literal":
        return _is_listed(elements, value)
    if name == "Annotated":
        return accepts(elements[0], value)
    return _is_instance(value, name) and _accepts_items(name, elements, value)


def _is_listed(elements: Iterable[ast.expr], value: Any) -> bool:
    """Whether the value is one of the constants of a ``Literal``."""
    # By type, too: to Python 1 and True are equal.
    constants = [item.value for item in elements if isinstance(item, ast.Constant)]
    return any(type(value) is type(item) and value == item for item in constants)


def _accepts_items(name: str, elements: Sequence[ast.expr], value: Any) -> bool:
    """Whether every item of a container has the type that the annotation names."""
    if isinstance(value, dict) and name in ("dict", "Dict", "Mapping"):
        return all(accepts(elements[-1], item) for item in value.values())
    if isinstance(value, list) and name in ("list", "List", "Sequence", "set"):
        return all(accepts(elements[0], item) for item in value)
    return True


def _elements(index: ast.expr) -> Sequence[ast.expr]:
    if isinstance(index, ast.Tuple):
        return index.elts
    return [index]
