"""The table of a chaos run, as docs/reliability.md has it between its markers."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import ray

from tests.chaos.campaign import SweepResult
from tests.chaos.kinds import KINDS

BEGIN, END = "<!-- chaos: written by `make chaos` -->", "<!-- /chaos -->"


def write(path: Path, results: Sequence[SweepResult], drawn: int, command: str) -> None:
    """Put the table in its place in the page. ``drawn`` faults are to strike in all."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(
        "\n".join([before.rstrip("\n"), "", BEGIN, *_origin(command), *table(results, drawn), END])
        + after
    )


def _origin(command: str) -> Iterator[str]:
    yield ""
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    yield f"`{command}`, {today}, Ray {ray.__version__}, {machine()}:"
    yield ""


def table(results: Sequence[SweepResult], drawn: int) -> Iterator[str]:
    """Markdown: what held, then a row a kind of fault."""
    faults = [effect for result in results for effect in result.faults]
    trials = sum(result.trials for result in results)
    kinds = len({effect.kind for effect in faults})
    struck = f"{len(faults)} of {drawn} faults, of {kinds} kinds"
    yield f"{struck}, in {len(results)} sweeps of {trials} trials together."
    yield ""
    yield "| what must not be | times |"
    yield "| --- | ---: |"
    for what, found in (
        ("finished trials lost or changed, or another program's files touched", "lost"),
        (
            "planned trials without exactly one row, in the records or in the table",
            "without_one_row",
        ),
        ("trials begun again after their record was written", "repeated"),
        (
            "records different from the undisturbed sweep's, of trials that were not struck",
            "different",
        ),
    ):
        yield f"| {what} | {sum(len(getattr(result, found)) for result in results)} |"
    wrong = [effect for effect in faults if effect.wrong]
    yield f"| faults with another effect than in the table below | {len(wrong)} |"
    yield ""
    yield "| fault | times | what becomes of it | records of the trials | longest until then |"
    yield "| --- | ---: | --- | --- | ---: |"
    for kind in KINDS:
        own = [effect for effect in faults if effect.kind == kind.name]
        if own:
            rows = ", ".join(
                f"{count} {outcome}"
                for outcome, count in Counter(effect.outcome for effect in own).items()
            )
            longest = max(effect.seconds for effect in own)
            until = f"{longest:.1f} s" if kind.is_outside else ""
            yield f"| {kind.name} | {len(own)} | {kind.answer} | {rows} | {until} |"
    yield ""


def machine() -> str:
    """This machine, in words."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"
