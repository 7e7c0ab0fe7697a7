"""The source of a technique's hook with everything of its own module that it leans on; nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path


def lifted(path: str) -> str:
    """The text of ``module:function`` and of the module's own definitions it uses, in the file's order.

    Such a function imports what it needs inside itself, as every hook in ``jobs.techniques`` does, so that its text
    runs elsewhere. Raises ValueError where it leans on an import of its module.
    """
    module, _, name = path.partition(":")
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise ValueError(f"{module} is not to be found")
    text = Path(found.origin).read_text()
    tree = ast.parse(text)
    own = {name: node for node in tree.body for name in _defined(node)}
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    wanted, waiting = set[str](), [name]
    while waiting:
        wanted.add(name := waiting.pop())
        used = set(_names(own[name]))
        if missing := used & imported:
            raise ValueError(f"{path} uses {', '.join(sorted(missing))}, which its module imports")
        waiting += (used & own.keys()) - wanted
    nodes = sorted(
        {id(own[name]): own[name] for name in wanted}.values(), key=lambda node: node.lineno
    )
    return "\n\n\n".join(ast.get_source_segment(text, node) or "" for node in nodes)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _names(node: ast.AST) -> Iterator[str]:
    """Names read at run time: those in annotations are text and are left out."""
    if isinstance(node, ast.arg):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _names(child)
