"""Makes measured_data.py, one file that reads the user's data as trials do.

The file joins the source of the modules with which trials read data. So the exported training makes
the same rows from texts, chats, prompts with completions, or names of classes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import jobs
from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.source_lifting import defined_names

FILE_NAME = "measured_data.py"
"""Name of the file. It is in the folder of train.py, which imports it."""
_MODULES = (
    "data_files.py",
    "spec/model_and_data.py",
    "trial/data/recognition.py",
    "trial/data/class_labels.py",
    "trial/data/collators.py",
    "trial/data/row_lengths.py",
    "trial/data/tokenizing.py",
    "trial/data/user_file.py",
    "finetuning/vision/image_layouts.py",
    "finetuning/vision/random_images.py",
    "finetuning/vision/processed_images.py",
    "finetuning/trl/token_rows.py",
    "finetuning/trl/pair_rows.py",
    "finetuning/trl/raw_rows.py",
)
"""Modules of ``jobs``, sorted so that each comes after those that it imports."""
_NOT_NEEDED = ("annotations", "TYPE_CHECKING")
"""Imported names to leave out: ``_HEAD`` has them, or the file does not use them."""
_HEAD = '''"""Rows and batches of your data as they were measured; `train.py` imports this file."""

from __future__ import annotations
'''


def data_module() -> str:
    """The text of measured_data.py.

    Raises NotExportableError if the modules do not fit together in one file.
    """
    return _joined(_MODULES)


@functools.cache
def _joined(modules: tuple[str, ...]) -> str:
    """The text of one file with the definitions of these modules."""
    imports: dict[str, set[str]] = {}
    bodies = []
    defined: set[str] = set()
    for name in modules:
        text = (Path(jobs.__file__).parent / name).read_text(encoding="utf-8")
        module = ast.parse(text)
        _check_names(module, defined, name)
        for source, imported in _outside_imports(module):
            imports.setdefault(source, set()).add(imported)
        bodies.append(_without(text, _left_out(module)))
    lines = [_import_line(source, names) for source, names in sorted(imports.items())]
    return "\n".join([_HEAD, *lines, "", "", *bodies])


def _import_line(source: str, names: set[str]) -> str:
    """``import json``, ``import numpy as np`` or ``from typing import Any``."""
    if names == {""}:
        return f"import {source}"
    return f"from {source} import {', '.join(sorted(names))}"


def _check_names(module: ast.Module, defined: set[str], name: str) -> None:
    """Add the names that a module defines to ``defined``.

    Raises NotExportableError if a name is defined already, or if the module imports a name from
    ``jobs`` that is not defined yet.
    """
    for node in _inside_imports(module):
        missing = {alias.name for alias in node.names} - defined
        if missing:
            raise NotExportableError(f"{name} uses {', '.join(sorted(missing))} of another module")
    names = {defined_name for node in module.body for defined_name in defined_names(node)}
    if names & defined:
        raise NotExportableError(f"{name} defines {', '.join(sorted(names & defined))} again")
    defined |= names


def _inside_imports(module: ast.Module) -> Iterator[ast.ImportFrom]:
    """Imports of other modules of ``jobs``, whose names are in the same file here."""
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jobs"):
            yield node


def _outside_imports(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Imports from outside ``jobs``, as (module, name), or (module, "") for a plain import."""
    statements = list(module.body)
    for node in module.body:
        if _is_for_type_checkers(node):
            assert isinstance(node, ast.If)
            statements += node.body
    ours = list(_inside_imports(module))
    for node in statements:
        if isinstance(node, ast.Import):
            yield ast.unparse(node).removeprefix("import "), ""
        elif isinstance(node, ast.ImportFrom) and node not in ours:
            for alias in node.names:
                if alias.name not in _NOT_NEEDED:
                    yield node.module or "", alias.name


def _left_out(module: ast.Module) -> list[ast.stmt]:
    """The statements to leave out: docstring, imports, and blocks for type checkers."""
    left_out = []
    for index, node in enumerate(module.body):
        is_docstring = index == 0 and isinstance(node, ast.Expr)
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        if is_docstring or is_import or _is_for_type_checkers(node):
            left_out.append(node)
    return left_out


def _is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _without(text: str, left_out: list[ast.stmt]) -> str:
    """The text of a module without the lines of some statements."""
    dropped: set[int] = set()
    for node in left_out:
        dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return "\n".join(line for number, line in numbered if number not in dropped).strip() + "\n\n"
