"""The tables of the campaigns in docs/reliability.md, each between its markers."""

import datetime
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import ray


def split(text: str, campaign: str) -> tuple[str, str, str]:
    """The page before, between and after a campaign's markers, which are in the first and last."""
    begin, end = f"<!-- {campaign}: written by `make {campaign}` -->", f"<!-- /{campaign} -->"
    before, _, rest = text.partition(begin)
    table, _, after = rest.partition(end)
    return before + begin, table, end + after


def write(path: Path, campaign: str, module: str, table: Iterable[str], took: str = "") -> None:
    """Put a table in its place, under the command that this process was started with."""
    before, _, after = split(path.read_text(), campaign)
    command = f"python -m {module} {shlex.join(sys.argv[1:])}"
    memory = psutil.virtual_memory().total / 2**30
    linux = platform.release().partition("-")[0]
    machine = f"{psutil.cpu_count()} cores, {memory:.0f} GiB, Linux {linux}"
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    origin = f"`{command}`, {today}, Ray {ray.__version__}, {machine}{took}:"
    path.write_text("\n".join([before, "", origin, "", *table, "", after]))


def checks(
    meanings: Mapping[str, str], found: Sequence[Mapping[str, Sequence[str]]]
) -> Iterator[str]:
    """How often each thing was found that must not be."""
    yield from ("", "| what must not be | times |", "| --- | ---: |")
    for name, meaning in meanings.items():
        yield f"| {meaning} | {sum(len(one.get(name, ())) for one in found)} |"
    yield ""
