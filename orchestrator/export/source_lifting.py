"""Extracts the source of a technique's hook, with all definitions of its module that it uses."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.export.generated_code import Code, NotExportableError

_NOT_RUN = ("annotation", "returns", "decorator_list")
"""Fields of a syntax node that an exported function does not run."""


def lifted(function: Callable[..., Any]) -> Code:
    """The source of a function and of the definitions in its module that it uses, in file order.

    The function must import what it needs inside its body, as every hook in ``jobs.techniques``
    does. Then its source runs in any file. Decorators are left out. Raises NotExportableError if
    the function uses an import of its module, or has no source.
    """
    text = _module_source(function)
    module = _read_module(text)
    if function.__name__ not in module.definitions:
        raise NotExportableError(f"{function.__qualname__} is not at the top level of its module")
    # One statement may define several of the names, but must be written only once.
    by_line = {}
    for name in _needed_definitions(function.__name__, module):
        statement = module.definitions[name]
        by_line[statement.lineno] = statement
    sources = (ast.get_source_segment(text, by_line[line]) or "" for line in sorted(by_line))
    return Code("\n\n\n".join(sources))


@dataclass(frozen=True, slots=True)
class _Module:
    """The definitions and imports at the top level of a module."""

    definitions: dict[str, ast.stmt]
    """Name -> the statement that defines it."""
    imported: set[str]


@functools.cache
def _read_module(text: str) -> _Module:
    module = _Module({}, set())
    for node in ast.parse(text).body:
        for name in defined_names(node):
            module.definitions[name] = node
        module.imported.update(_imported_names(node))
    return module


def _module_source(function: Callable[..., Any]) -> str:
    """The text of the file that defines a function."""
    path = inspect.getsourcefile(function)
    if path is None:
        raise NotExportableError(f"{function.__qualname__} has no source file")
    return Path(path).read_text(encoding="utf-8")


def _needed_definitions(function_name: str, module: _Module) -> set[str]:
    """The function's name, and the names of all definitions that it uses, directly or not."""
    needed: set[str] = set()
    waiting = [function_name]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        used = set(_used_names(module.definitions[name]))
        missing = sorted(used & module.imported)
        if missing:
            raise NotExportableError(
                f"{function_name} cannot stand alone: it uses {', '.join(missing)}, which its "
                "module imports"
            )
        waiting += (used & module.definitions.keys()) - needed
    return needed


def defined_names(node: ast.stmt) -> list[str]:
    """The names that a statement at the top level of a module defines, without imports."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []


def _imported_names(node: ast.stmt) -> list[str]:
    """The names that an import binds; none for another statement."""
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return []
    # ``import a.b`` binds ``a``.
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def _used_names(node: ast.AST) -> Iterator[str]:
    """Names that a statement reads when it runs, without those in annotations and decorators."""
    if isinstance(node, ast.arg):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in _NOT_RUN:
            for child in _nodes_in(value):
                yield from _used_names(child)


def _nodes_in(value: Any) -> list[ast.AST]:
    """The syntax nodes in the value of a node's field: one, several or none."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, ast.AST)]
