"""The table of a chaos run, as docs/reliability.md has it between its markers."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import ray

from tests.chaos.campaign import Verdict
from tests.chaos.kinds import KINDS

BEGIN, END = "<!-- chaos: written by `make chaos` -->", "<!-- /chaos -->"


def write(path: Path, verdicts: Sequence[Verdict], drawn: int, command: str) -> None:
    """Put the table in the page's place for it; of ``drawn`` faults those that have struck by now."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(
        "\n".join([before.rstrip("\n"), "", BEGIN, *_origin(command), *table(verdicts, drawn), END])
        + after
    )


def _origin(command: str) -> Iterator[str]:
    yield ""
    yield f"`{command}`, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, Ray {ray.__version__}, {_machine()}:"
    yield ""


def table(verdicts: Sequence[Verdict], drawn: int) -> Iterator[str]:
    """Markdown: what held, then a row a kind of fault."""
    faults = [seen for verdict in verdicts for seen in verdict.faults]
    trials = sum(verdict.trials for verdict in verdicts)
    kinds = len({seen.kind for seen in faults})
    yield f"{len(faults)} of {drawn} faults, of {kinds} kinds, in {len(verdicts)} sweeps of {trials} trials together."
    yield ""
    yield "| what must not be | times |"
    yield "| --- | ---: |"
    for what, found in (
        ("finished trials lost or changed, or somebody else's files touched", "lost"),
        ("planned trials without exactly one row, in the records or in the table", "rowless"),
        ("trials begun again after their row was written", "repeated"),
        (
            "rows unlike the undisturbed sweep's, but for the trials that were hurt themselves",
            "unlike",
        ),
    ):
        yield f"| {what} | {sum(len(getattr(verdict, found)) for verdict in verdicts)} |"
    yield f"| faults of which came what is not in the table below | {sum(bool(seen.wrong) for seen in faults)} |"
    yield ""
    yield "| struck | times | what becomes of it | rows of the trials that were hit | longest until that row |"
    yield "| --- | ---: | --- | --- | ---: |"
    for kind in KINDS:
        own = [seen for seen in faults if seen.kind == kind.name]
        if own:
            rows = ", ".join(
                f"{count} {outcome}"
                for outcome, count in Counter(seen.outcome for seen in own).items()
            )
            longest = max(seen.seconds for seen in own)
            until = f"{longest:.1f} s" if kind.is_outside else ""
            yield f"| {kind.name} | {len(own)} | {kind.answer} | {rows} | {until} |"
    yield ""


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}"
