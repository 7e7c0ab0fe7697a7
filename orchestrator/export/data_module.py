"""Makes measured_data.py, one file that reads the user's data, or draws random ones, as trials do.

It joins the source of the modules with which trials do so, so its rows are the same.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import jobs
from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.source_lifting import defined_names

FILE_NAME = "measured_data.py"
"""It is in the folder of train.py, which imports it."""
_MODULES = """
data_files.py spec/model_and_data.py data_lines.py trial/data/recognition.py
trial/data/class_labels.py trial/data/collators.py trial/data/row_lengths.py
trial/data/tokenizing.py trial/data/user_file.py finetuning/vision/image_layouts.py
finetuning/vision/random_images.py finetuning/vision/processed_images.py
finetuning/trl/raw_rows.py
"""
"""Modules of ``jobs``, sorted so that each comes after those that it imports."""
RANDOM_ROWS = """
spec/model_and_data.py tasks.py trial/data/collators.py trial/data/row_lengths.py
trial/data/synthetic.py
"""
"""Those that draw random samples of one text or one image."""
_HEAD = '''"""Rows and batches as they were measured; `train.py` imports this file."""

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
