"""The table of the campaign in docs/reliability.md, between its markers."""

import datetime
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import ray

BEGIN, END = "<!-- chaos: written by `make chaos` -->", "<!-- /chaos -->"


def split(text: str) -> tuple[str, str, str]:
    """The page before, between and after the markers, which are in the first and the last."""
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before + BEGIN, table, END + after


def write(path: Path, table: Iterable[str]) -> None:
    """Put a table in its place, under the command that this process was started with."""
    before, _, after = split(path.read_text())
    command = f"python -m tests.chaos {shlex.join(sys.argv[1:])}"
    memory = psutil.virtual_memory().total / 2**30
    linux = platform.release().partition("-")[0]
    machine = f"{psutil.cpu_count()} cores, {memory:.0f} GiB, Linux {linux}"
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    origin = f"`{command}`, {today}, Ray {ray.__version__}, {machine}:"
    path.write_text("\n".join([before, "", origin, "", *table, "", after]))


def checks(
    meanings: Mapping[str, str], found: Sequence[Mapping[str, Sequence[str]]]
) -> Iterator[str]:
    """How often each thing was found that must not be."""
    yield from ("", "| what must not be | times |", "| --- | ---: |")
    for name, meaning in meanings.items():
        yield f"| {meaning} | {sum(len(one.get(name, ())) for one in found)} |"
    yield ""
