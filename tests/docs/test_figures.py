"""Every figure that stands before the command of a recorded table is printed by it today."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator import explain
from tests.benchmarks import tables
from tests.docs.blocks import ROOT

PAGES = [ROOT / "docs" / name for name in ("validity.md", "benchmarks.md")]
MAINS = {"tests.benchmarks.tables": tables.main, "orchestrator.explain": explain.main}
"""Modules that print figures of recorded runs, in seconds and without a GPU."""
_CLAIM = re.compile(r"\||- \*\*(Figure|Power|False alarms|Out of sample|Intervals)\.")
_COMMAND = re.compile(rf"`python -m ({'|'.join(map(re.escape, MAINS))}) ([^`]*)`")
_NAMED = re.compile(r"`[^`]*`|\]\([^)]*\)|\d{4}-\d\d-\d\d(?: to \d+)?")
"""Code, links and dates: their digits are no figures."""
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)")


def figures(text: str) -> set[str]:
    """The numbers of a text; single digits are rather counts and parts of formulas."""
    numbers = (number.replace(",", "") for number in _NUMBER.findall(_NAMED.sub("", text)))
    return {number for number in numbers if len(number) > 1}


def claims(page: Path) -> Iterator[tuple[list[tuple[str, str]], set[str]]]:
    """(modules with their arguments, the figures that they print) of each table or paragraph."""
    claimed: set[str] = set()
    for block in re.split(r"\n(?=\s*[-|#]|\n)", page.read_text(encoding="utf-8")):
        text = " ".join(block.split())
        if _CLAIM.match(text):
            claimed |= figures(text)
        elif "Command" in text:
            # Commands of an earlier commit are not of today; NAME stands for several words.
            commands = _COMMAND.findall(text)
            if commands and "commit" not in text and "NAME" not in text:
                yield commands, claimed
            claimed = set()


def is_printed(figure: str, printed: set[str]) -> bool:
    """Whether a printed number is this figure, rounded to its decimals."""
    decimals = len(figure.partition(".")[2])
    return any(f"{float(number):.{decimals}f}" == figure for number in printed)


@pytest.mark.slow  # Some commands fit the variation of all recorded pairs.
@pytest.mark.parametrize(
    ("commands", "claimed"),
    [pytest.param(*claim, id=claim[0][0][1][:40]) for page in PAGES for claim in claims(page)],
)
def test_figures_of_pages_are_printed_by_their_commands(commands, claimed, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    for module, arguments in commands:
        expanded = subprocess.check_output(["bash", "-c", f"echo {arguments}"], text=True)
        MAINS[module](shlex.split(expanded))
    printed = set(_NUMBER.findall(capsys.readouterr().out.replace(",", "")))
    assert claimed
    assert [figure for figure in sorted(claimed) if not is_printed(figure, printed)] == []
