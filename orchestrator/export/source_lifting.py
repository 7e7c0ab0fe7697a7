"""Extracts source of this project: a technique's hook, or modules that read data, in one file."""

import ast
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jobs
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
    return Code("\n\n\n".join(map(_without_annotations, sources)))


def _without_annotations(source: str) -> str:
    """The source without the types of its functions, whose names another file does not import."""
    text = source.encode()
    begins = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    spans = []
    for node in ast.walk(ast.parse(source)):
        kind = getattr(node, "annotation", None) or getattr(node, "returns", None)
        if not isinstance(node, (ast.arg, ast.FunctionDef)) or kind is None:
            continue
        begin = begins[kind.lineno - 1] + kind.col_offset
        end = begins[kind.end_lineno - 1] + kind.end_col_offset
        # An equal sign has spaces only beside an annotation.
        has_default = isinstance(node, ast.arg) and text.startswith(b" = ", end)
        mark = b":" if isinstance(node, ast.arg) else b" ->"
        spans.append((text.rindex(mark, 0, begin), end + 3 * has_default, b"=" * has_default))
    for begin, end, instead in sorted(spans, reverse=True):
        text = text[:begin] + instead + text[end:]
    return text.decode()


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


FILE_NAME = "measured_data.py"
"""It is in the folder of train.py, which imports it."""
_MODULES = """
data_files.py spec/model_and_data.py data_lines.py trial/data/recognition.py
tasks.py trial/data/class_labels.py trial/data/collators.py trial/data/decoded_images.py
trial/data/row_lengths.py trial/data/tokenizing.py trial/sound_shapes.py trial/data/user_file.py
finetuning/vision/image_layouts.py finetuning/vision/random_images.py
finetuning/vision/processed_images.py finetuning/trl/raw_rows.py
"""
"""Modules of ``jobs``, sorted so that each comes after those that it imports."""
RANDOM_ROWS = """
spec/model_and_data.py tasks.py trial/data/collators.py trial/data/row_lengths.py
trial/sound_shapes.py trial/data/synthetic.py
"""
"""Those that draw random samples of one text, one image or one sound."""
_HEAD = '''# ruff: noqa
"""Rows and batches as they were measured; `train.py` imports this file."""

from __future__ import annotations

'''


@functools.cache
def data_module(modules: str = _MODULES) -> str:
    """The text of measured_data.py. Raises NotExportableError if the modules do not fit together in
    one file."""
    imports: dict[str, set[str]] = {}
    defined: set[str] = set()
    bodies = []
    for name in modules.split():
        text = (Path(jobs.__file__).parent / name).read_text(encoding="utf-8")
        docstring, *body = ast.parse(text).body
        for node in _imports(body):
            _add_import(node, imports, defined, name)
        own = {defined_name for node in body for defined_name in defined_names(node)}
        if own & defined:
            raise NotExportableError(f"{name} defines {', '.join(sorted(own & defined))} again")
        defined |= own
        imported = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom, ast.If))]
        bodies.append(_without(text, [docstring, *imported]))
    return "\n".join([_HEAD, *_import_lines(imports), "", "", *bodies])


def _import_lines(imports: dict[str, set[str]]) -> Iterator[str]:
    for module, names in sorted(imports.items()):
        start = f"from {module} import " if names else f"import {module}"
        yield start + ", ".join(sorted(names))


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those for type checkers are in a module's only ``if``."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _imports(node.body)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node


def _add_import(
    node: ast.Import | ast.ImportFrom, imports: dict[str, set[str]], defined: set[str], name: str
) -> None:
    """Add an import to ``imports``: module -> names; none for ``import module``."""
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.Import):
        imports[ast.unparse(node).removeprefix("import ")] = set()
    elif (node.module or "").startswith("jobs"):
        if missing := names - defined:
            raise NotExportableError(f"{name} uses {', '.join(sorted(missing))} of another module")
    elif node.module != "__future__":
        imports.setdefault(node.module or "", set()).update(names - {"TYPE_CHECKING"})


def _without(text: str, left_out: list[ast.stmt]) -> str:
    dropped: set[int] = set()
    for node in left_out:
        dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return "\n".join(line for number, line in numbered if number not in dropped).strip() + "\n\n"
