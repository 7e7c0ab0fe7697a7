"""The commands page lists every verb, with its exit statuses."""

import re

from orchestrator.__main__ import verbs
from tests.docs.blocks import ROOT, parser_of

PAGE = (ROOT / "docs/commands.md").read_text()
STATUSES = re.compile(r"^\| (\d+) \| (?:`(\w+)`|every verb) \| (.+) \|$", re.MULTILINE)


def test_exit_statuses_on_the_page_are_those_of_the_help():
    rows = [(int(status), verb, meaning) for status, verb, meaning in STATUSES.findall(PAGE)]
    assert {verb for _, verb, _ in rows} <= {"", *verbs()}
    for verb in verbs():
        on_page = [f"{status} {meaning}" for status, of, meaning in rows if of in ("", verb)]
        epilog = parser_of(verb).epilog
        assert epilog.endswith(f"Exit status: {', '.join(on_page)}."), verb


def test_every_verb_is_on_the_page_and_prints_json_where_it_prints_a_table():
    for verb in verbs():
        assert re.search(rf"^\| `{verb}\b", PAGE, re.MULTILINE), verb
        assert ("--json" in parser_of(verb).format_help()) == (verb != "completion"), verb
