"""Every figure that stands before the command of a recorded table is printed by it today."""

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from orchestrator import explain
from orchestrator.analysis.repeatability import (
    BETWEEN_TECHNIQUES,
    BETWEEN_TRIALS,
    ENERGY_BETWEEN_TRIALS,
)
from tests.benchmarks import tables
from tests.docs.blocks import ROOT
from tests.unit.benchmarks.test_repeatability import printed_figures

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


@cache
def printed_by(module: str, arguments: str) -> str:
    """What a command of the pages prints, run from the repository."""
    expanded = subprocess.check_output(["bash", "-c", f"echo {arguments}"], text=True, cwd=ROOT)
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.chdir(ROOT):
        MAINS[module](shlex.split(expanded))
    return printed.getvalue()


@pytest.mark.slow  # Some commands fit the variation of all recorded pairs.
@pytest.mark.parametrize(
    ("commands", "claimed"),
    [pytest.param(*claim, id=claim[0][0][1][:40]) for page in PAGES for claim in claims(page)],
)
def test_figures_of_pages_are_printed_by_their_commands(commands, claimed):
    printed = "".join(printed_by(*command) for command in commands)
    numbers = set(_NUMBER.findall(printed.replace(",", "")))
    assert claimed
    assert [figure for figure in sorted(claimed) if not is_printed(figure, numbers)] == []


def test_repeatability_in_code_is_what_the_command_prints():
    text = printed_by("tests.benchmarks.tables", "repeatability docs/results/2026-11-2*")
    printed = text.splitlines()
    fits = [(f"{pace}:", BETWEEN_TRIALS[pace]) for pace in ENERGY_BETWEEN_TRIALS]
    fits += [(f"{pace}, energy:", fitted) for pace, fitted in ENERGY_BETWEEN_TRIALS.items()]
    for start, fitted in fits:
        [line] = [line for line in printed if line.startswith(start)]
        figures = printed_figures(line)
        _, _, relative, seconds, degrees, between_runs, slow_host, power, *_ = figures
        assert fitted.relative == pytest.approx(relative)
        assert fitted.seconds == pytest.approx(seconds)
        assert fitted.degrees_of_freedom == degrees
        assert fitted.between_runs == pytest.approx(between_runs)
        assert fitted.slow_host_seconds == pytest.approx(slow_host)
        assert fitted.waits_power == power
        # What the documentation says of ±: 95 of 100 cases, of runs that the fit has not seen.
        assert all(0.93 <= held < 0.985 for held in figures[-2:])
    [shared] = [printed_figures(line)[-1] for line in printed if "share " in line]
    assert shared == pytest.approx(BETWEEN_TECHNIQUES)
