"""measured_data.py: the trials' own reading of data, or drawing of it, in one file of its own."""

import ast
import builtins
import symtable

import pytest

from orchestrator.export.data_module import RANDOM_ROWS, data_module
from orchestrator.export.generated_code import NotExportableError

EACH = pytest.mark.parametrize(
    "text", [data_module(), data_module(RANDOM_ROWS)], ids=["file", "random_rows"]
)


@EACH
def test_data_module_imports_nothing_of_this_project(text):
    packages = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages.add((node.module or "").partition(".")[0])
    assert packages <= {
        "PIL", "__future__", "collections", "contextlib", "csv", "dataclasses", "datasets",
        "fnmatch", "functools", "glob", "io", "itertools", "json", "math", "numpy", "os", "pathlib",
        "stat", "tokenizers", "torch", "transformers", "typing", "warnings",
    }  # fmt: skip


@EACH
def test_data_module_defines_every_name_that_it_uses(text):
    table = symtable.symtable(text, "measured_data.py", "exec")
    defined = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned()}
    defined |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_imported()}
    assert _globals_used(table) - defined - set(dir(builtins)) - {"__name__"} == set()


def _globals_used(table: symtable.SymbolTable) -> set[str]:
    """Names that functions and classes look up in the module."""
    used = set()
    for child in table.get_children():
        used |= {symbol.get_name() for symbol in child.get_symbols() if symbol.is_global()}
        used |= _globals_used(child)
    return used


def test_data_module_in_the_wrong_order_is_refused():
    with pytest.raises(NotExportableError, match="of another module"):
        data_module("spec/model_and_data.py trial/data/user_file.py")
