"""The page of faults claims nothing without a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.chaos import page
from tests.chaos.killer import page as killer_page
from tests.chaos.kinds import KINDS

ROOT = Path(__file__).parents[2]


def without(text: str, begin: str, end: str) -> tuple[str, str]:
    """The text without the part between two markers, and that part."""
    before, _, rest = text.partition(begin)
    part, _, after = rest.partition(end)
    return before + after, part


def test_every_row_of_the_reliability_page_names_a_test_that_exists() -> None:
    by_hand, _ = without((ROOT / "docs/reliability.md").read_text(), page.BEGIN, page.END)
    by_hand, _ = without(by_hand, killer_page.BEGIN, killer_page.END)
    rows = []
    for section in re.split(r"^## ", by_hand, flags=re.MULTILINE):
        # The other tables are of campaigns, printed by a command.
        if "| fault |" in section:
            listed = [line for line in section.splitlines() if line.startswith("| ")]
            rows += [line for line in listed if not line.startswith(("| fault", "| ---"))]
    assert len(rows) > 30
    for row in rows:
        (named,) = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        functions = ast.walk(ast.parse((ROOT / named[0]).read_text()))
        assert named[1] in {node.name for node in functions if isinstance(node, ast.FunctionDef)}, (
            row
        )


def test_the_table_of_the_chaos_run_is_of_the_kinds_there_are_and_nothing_in_it_went_wrong() -> (
    None
):
    table = (
        (ROOT / "docs/reliability.md").read_text().partition(page.BEGIN)[2].partition(page.END)[0]
    )
    _, wrongs, faults = (
        part.splitlines() for part in re.split(r"^\| --- .*\n", table, flags=re.MULTILINE)
    )
    kinds = {kind.name: kind.answer for kind in KINDS}
    rows = [line.strip("| ").split(" | ") for line in faults if line.startswith("| ")]
    assert len(rows) > 10
    assert [row[0] for row in rows if kinds.get(row[0]) != row[2]] == []
    assert {line.strip("| ").split(" | ")[1] for line in wrongs[: wrongs.index("")]} == {"0"}


def test_the_random_killers_table_has_ten_sweeps_and_nothing_in_it_went_wrong() -> None:
    text = (ROOT / "docs/reliability.md").read_text()
    _, table = without(text, killer_page.BEGIN, killer_page.END)
    sweeps = re.search(r"^(\d+) sweeps of", table, flags=re.MULTILINE)
    assert sweeps is not None
    assert int(sweeps[1]) >= 10
    checks = table.partition("| what must not be |")[2].partition("\n\n")[0]
    counts = {line.strip("| ").split(" | ")[1] for line in checks.splitlines()[2:]}
    assert counts == {"0"}
