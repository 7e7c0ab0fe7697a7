"""Functions lifted out of their modules."""

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.export.generated_code import NotExportableError
from orchestrator.export.source_lifting import lifted

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
