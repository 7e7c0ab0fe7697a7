"""Extracts the source of a technique's hook, with all definitions of its module that it uses."""

import ast
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.export.generated_code import Code, NotExportableError

_NOT_RUN = ("annotation", "returns", "decorator_list")
"""Fields of a syntax node that an exported function does not run."""


def lifted(function: Callable[..., Any]) -> Code:
    """The source of a function and of the definitions in its module that it uses, in file order. It
    must import what it needs inside its body, as every hook does, so that it runs in any file.
    Decorators are left out. Raises NotExportableError if it uses an import of its module."""
    path = inspect.getsourcefile(function)
    if path is None:
        raise NotExportableError(f"{function.__qualname__} has no source file")
    text = Path(path).read_text(encoding="utf-8")
    definitions, imported = _read_module(text)
    if function.__name__ not in definitions:
        raise NotExportableError(f"{function.__qualname__} is not at the top level of its module")
    needed: set[str] = set()
    waiting = {function.__name__}
    while waiting:
        name = waiting.pop()
        needed.add(name)
        used = set(_used_names(definitions[name]))
        if missing := sorted(used & imported):
            raise NotExportableError(
                f"{function.__name__} cannot stand alone: it uses {', '.join(missing)}, which its "
                "module imports"
            )
        waiting |= (used & definitions.keys()) - needed
    # One statement may define several of the names, but must be written only once.
    by_line = {definitions[name].lineno: definitions[name] for name in needed}
    sources = (ast.get_source_segment(text, by_line[line]) or "" for line in sorted(by_line))
    return Code("\n\n\n".join(sources))


@functools.cache
def _read_module(text: str) -> tuple[dict[str, ast.stmt], set[str]]:
    """The definitions at the top level of a module by their names, and the imported names."""
    definitions: dict[str, ast.stmt] = {}
    imported: set[str] = set()
    for node in ast.parse(text).body:
        definitions |= dict.fromkeys(defined_names(node), node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            # ``import a.b`` binds ``a``.
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return definitions, imported


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


def _used_names(node: ast.AST) -> Iterator[str]:
    """Names that a statement reads when it runs, without those in annotations and decorators."""
    if isinstance(node, ast.arg):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field in _NOT_RUN:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _used_names(child)
