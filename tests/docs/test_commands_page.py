"""The page of commands says of every verb what it is, whether it prints JSON and how it ends; no
more, no less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.__main__ import verbs
from tests.docs.blocks import ROOT
from tests.docs.calling import parser_of

PAGE = (ROOT / "docs/commands.md").read_text()
STATUSES = re.compile(r"^\| (\d+) \| (?:`(\w+)`|every verb) \| (.+) \|$", re.MULTILINE)


def told(verb: str) -> Iterator[tuple[int, str]]:
    """(status, meaning) of a verb, as its help ends."""
    epilog = parser_of(verb).epilog
    assert epilog is not None
    for entry in epilog.partition("Exit status: ")[2].removesuffix(".").split(", "):
        status, _, meaning = entry.partition(" ")
        yield int(status), meaning


def test_the_table_of_exit_statuses_is_every_verbs_own() -> None:
    rows = [(int(status), verb, meaning) for status, verb, meaning in STATUSES.findall(PAGE)]
    assert {verb for _, verb, _ in rows} <= {"", *verbs()}
    for verb in verbs():
        assert [(status, meaning) for status, of, meaning in rows if of in ("", verb)] == [
            *told(verb)
        ], verb


def test_every_verb_is_on_the_page_and_prints_json_where_it_prints_a_table() -> None:
    for verb in verbs():
        assert re.search(rf"^\| `{verb}\b", PAGE, re.MULTILINE), verb
        assert ("--json" in parser_of(verb).format_help()) == (verb != "completion"), verb
