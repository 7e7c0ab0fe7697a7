"""Functions lifted out of their modules."""

import ast
import builtins
import importlib.util
import symtable
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.source_lifting import RANDOM_ROWS, data_module, lifted

MODULE = '''
import json
from jobs.techniques.hooks import hook

LIMIT = 3


def helper(value: "json.JSONEncoder") -> int:
    return value + LIMIT


@hook("lifted_in_a_test")
def alone(value):
    """Uses a helper and a constant."""
    import math

    return math.floor(helper(value))


def leaning(value):
    return json.dumps(value)


class Holder:
    def method(self):
        return 1
'''


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "liftable.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("liftable", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["liftable"] = module
    spec.loader.exec_module(module)
    return module


def test_lifted_takes_what_the_function_uses_and_no_decorator(module):
    source = lifted(module.alone)
    names = [getattr(node, "name", "LIMIT") for node in ast.parse(source).body]
    assert names == ["LIMIT", "helper", "alone"]
    assert "hook" not in source
    namespace: dict[str, Callable[[int], int]] = {}
    exec(source, namespace)
    assert namespace["alone"](4) == 7


def test_lifted_refuses_a_function_that_uses_its_modules_import(module):
    with pytest.raises(NotExportableError, match="it uses json, which its module imports"):
        lifted(module.leaning)


def test_lifted_refuses_a_function_that_is_not_at_the_top_level(module):
    with pytest.raises(NotExportableError, match="not at the top level"):
        lifted(module.Holder.method)


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
        "fnmatch", "functools", "glob", "gzip", "io", "itertools", "json", "math", "numpy", "os",
        "pathlib", "stat", "tokenizers", "torch", "transformers", "typing", "warnings", "zlib",
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
