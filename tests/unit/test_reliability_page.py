"""The page of faults claims nothing without a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_of_the_reliability_page_names_a_test_that_exists() -> None:
    lines = (ROOT / "docs/reliability.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| fault", "| ---"))]
    assert len(rows) > 30
    for row in rows:
        (named,) = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        functions = ast.walk(ast.parse((ROOT / named[0]).read_text()))
        assert named[1] in {node.name for node in functions if isinstance(node, ast.FunctionDef)}, row
