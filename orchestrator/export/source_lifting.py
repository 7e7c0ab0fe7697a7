"""The source of a technique's hook, with everything of its own module that it uses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.export.generated_code import Code, NotExportableError


def lifted(function: Callable[..., Any]) -> Code:
    """The text of a function and of its module's own definitions that it uses, in file order.

    Such a function imports what it needs inside itself, as every hook in ``jobs.techniques`` does,
    so that its text runs elsewhere. Decorators are left out. Raises NotExportableError where the
    function uses an import of its module, or has no source.
    """
    text = _module_source(function)
    tree = ast.parse(text)
    definitions: dict[str, ast.stmt] = {}
    imported: set[str] = set()
    for node in tree.body:
        definitions |= dict.fromkeys(_defined_names(node), node)
        imported |= set(_imported_names(node))
    if function.__name__ not in definitions:
        raise NotExportableError(f"{function.__qualname__} is not at the top level of its module")
    needed = _needed_definitions(function.__name__, definitions, imported)
    nodes = {id(definitions[name]): definitions[name] for name in needed}
    in_order = sorted(nodes.values(), key=_line)
    sources = [ast.get_source_segment(text, node) or "" for node in in_order]
    return Code("\n\n\n".join(sources))


def _module_source(function: Callable[..., Any]) -> str:
    path = inspect.getsourcefile(function)
    if path is None:
        raise NotExportableError(f"{function.__qualname__} has no source file")
    return Path(path).read_text(encoding="utf-8")


def _needed_definitions(
    function_name: str, definitions: dict[str, ast.stmt], imported: set[str]
) -> set[str]:
    """The function's name, and the names of all definitions that it uses, directly or not."""
    needed: set[str] = set()
    waiting = [function_name]
    while waiting:
        name = waiting.pop()
        needed.add(name)
        used = set(_used_names(definitions[name]))
        missing = sorted(used & imported)
        if missing:
            raise NotExportableError(
                f"{function_name} cannot stand alone: it uses {', '.join(missing)}, which its "
                "module imports"
            )
        waiting += (used & definitions.keys()) - needed
    return needed


def _line(node: ast.stmt) -> int:
    return node.lineno


def _defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _imported_names(node: ast.stmt) -> list[str]:
    if not isinstance(node, (ast.Import, ast.ImportFrom)):
        return []
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def _used_names(node: ast.AST) -> Iterator[str]:
    """Names read at run time; annotations are text, and decorators are left out."""
    if isinstance(node, ast.arg):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _used_names(child)
