"""The page of faults claims nothing without a test that exists."""

import ast
import re

import pytest

from orchestrator.running import nodes
from orchestrator.running.cluster import connection, gpu_slot, membership, ray_watch, searcher
from orchestrator.running.cluster import slot_watch as slots
from tests.chaos.kinds import KINDS
from tests.chaos.page import split
from tests.support.commands import ROOT

PAGE = (ROOT / "docs/reliability.md").read_text()

LIMITS = [
    ("A slot may attempt a trial twice", gpu_slot.INFRASTRUCTURE_RETRIES, 2),
    ("twice that timeout, plus two minutes", slots.ANSWER_SECONDS, 120),
    ("it counts as lost after 30 seconds", ray_watch.HANG_SECONDS, 30),
    ("that is noticed within a second", 4 * ray_watch.LOOK_SECONDS, 1),
    ("Ray's GCS has 40 seconds to appear", ray_watch.GCS_SECONDS, 40),
    ("and all of Ray three minutes to start", nodes.NODE_SECONDS, 180),
    ("has not shut down after 20 seconds", connection._SHUTDOWN_SECONDS, 20),
    ("if no slot starts for five minutes", slots.START_SECONDS, 300),
    ("waits ten minutes for a fit GPU", membership.NO_NODE_SECONDS, 600),
    ("A lost run folder is noticed within two seconds", 2 * searcher.LOOK_SECONDS, 2),
]


@pytest.mark.parametrize(("words", "seconds", "stated"), LIMITS)
def test_limit_on_the_page_is_the_programs(words, seconds, stated):
    assert words in PAGE
    assert seconds == stated


def test_every_row_of_the_reliability_page_names_a_test_that_exists():
    before, _, after = split(PAGE)
    rows = []
    for section in re.split(r"^## ", before + after, flags=re.MULTILINE):
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
    _, table, _ = split(PAGE)
    answers = {kind.name: kind.answer for kind in KINDS}
    lines = table.partition("| fault |")[2].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert len(rows) > 10
    assert [row[0] for row in rows if answers.get(row[0]) != row[2]] == []
    faultless = table.partition("| what must not be |")[2].partition("\n\n")[0].splitlines()[2:]
    assert {row.strip("| ").split(" | ")[1] for row in faultless} == {"0"}
