"""The page of faults claims nothing without a test that exists."""

import ast
import re

from tests.chaos.kinds import KINDS
from tests.chaos.page import split
from tests.support.commands import ROOT

PAGE = (ROOT / "docs/reliability.md").read_text()


def counts(table: str) -> set[str]:
    """The distinct counts in a campaign's table of what must not be."""
    rows = table.partition("| what must not be |")[2].partition("\n\n")[0].splitlines()[2:]
    return {row.strip("| ").split(" | ")[1] for row in rows}


def test_every_row_of_the_reliability_page_names_a_test_that_exists():
    by_hand = PAGE
    for campaign in ("chaos", "killer"):
        before, _, after = split(by_hand, campaign)
        by_hand = before + after
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


def test_the_table_of_the_chaos_run_is_of_the_kinds_there_are_and_nothing_in_it_went_wrong():
    _, table, _ = split(PAGE, "chaos")
    answers = {kind.name: kind.answer for kind in KINDS}
    lines = table.partition("| fault |")[2].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert len(rows) > 10
    assert [row[0] for row in rows if answers.get(row[0]) != row[2]] == []
    assert counts(table) == {"0"}


def test_the_random_killers_table_has_ten_sweeps_and_nothing_in_it_went_wrong():
    _, table, _ = split(PAGE, "killer")
    sweeps = re.search(r"^(\d+) sweeps of", table, flags=re.MULTILINE)
    assert int(sweeps[1]) >= 10
    assert counts(table) == {"0"}
