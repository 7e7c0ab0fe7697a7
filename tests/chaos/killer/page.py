"""The table of a random killer's campaign, as docs/reliability.md has it between its markers."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import ray

from tests.chaos.killer.outcome import CHECKS, SweepOutcome
from tests.chaos.killer.victims import STRIKES
from tests.chaos.page import machine

BEGIN, END = "<!-- killer: written by `make killer` -->", "<!-- /killer -->"


def write(path: Path, outcomes: Sequence[SweepOutcome], command: str, seconds: float) -> None:
    """Put the table in its place in the page."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    origin = (
        f"`{command}`, {today}, Ray {ray.__version__}, {machine()}, {seconds / 60:.0f} minutes:"
    )
    lines = [before.rstrip("\n"), "", BEGIN, "", origin, "", *table(outcomes), END]
    path.write_text("\n".join(lines) + after)


def table(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    """Markdown: what held, then a row for each kind of strike."""
    strikes = [strike for outcome in outcomes for strike in outcome.strikes]
    trials = sum(outcome.trials for outcome in outcomes)
    drivers = sum(outcome.drivers for outcome in outcomes)
    reads = sum(outcome.reads for outcome in outcomes)
    yield (
        f"{len(outcomes)} sweeps of {trials} trials, {len(strikes)} strikes, {drivers} drivers,"
        f" {reads} reads."
    )
    yield ""
    yield "| what must not be | times |"
    yield "| --- | ---: |"
    for name, words in CHECKS.items():
        yield f"| {words} | {sum(len(getattr(outcome, name)) for outcome in outcomes)} |"
    yield ""
    yield "| strike | times | the driver | longest wait for a record or the driver's end |"
    yield "| --- | ---: | --- | ---: |"
    for kind in STRIKES:
        of_kind = [strike for strike in strikes if strike.name == kind.name]
        if of_kind:
            ends = Counter(_end(strike.statuses) for strike in of_kind)
            words = ", ".join(f"{what} ({times})" for what, times in ends.most_common())
            longest = max(strike.seconds for strike in of_kind)
            yield f"| {kind.name} | {len(of_kind)} | {words} | {longest:.0f} s |"
        else:
            yield f"| {kind.name} | 0 | not run | |"
    yield ""


def _end(statuses: Sequence[int]) -> str:
    if not statuses:
        return "went on"
    if statuses[0] < 0:
        return "was killed, then resumed"
    if statuses[0] == 0:
        return "completed the sweep"
    return f"ended with status {statuses[0]}, then resumed"
