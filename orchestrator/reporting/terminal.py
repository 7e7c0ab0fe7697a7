"""The printed end of a run: the frontier, the best in each budget, what came of the trials, where the files are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.record import Outcome
from orchestrator.analysis.summary import Cohort, Summary
from orchestrator.reporting import cells
from orchestrator.reporting.json_output import to_json
from orchestrator.reporting.search_summary import account, standing
from orchestrator.units import count

WIDTH = 96
LONGEST = 20


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the command line's end knows what to do; rich would end the process here


def print_summary(
    summary: Summary, console: Console | None = None, *, as_json: bool = False
) -> None:
    """Print the end of a run: under 100 columns, and plain where the output is no terminal; or all of it, as JSON."""
    if as_json:
        print(json.dumps(to_json(summary), indent=2))
        return
    console = console or _Console()
    console.print(
        render(summary), width=min(WIDTH, console.width) if console.is_terminal else WIDTH
    )


def render(summary: Summary) -> RenderableType:
    """The same as something rich can print."""
    parts: list[RenderableType] = [_outcomes(summary), *map(_dim, _opening(summary))]
    for cohort in summary.cohorts:
        parts += [Text(), *_cohort(summary, cohort)]
    if summary.failures:
        parts += [Text(), *_failures(summary)]
    if summary.doubts:
        parts += [Text(), *_warnings(summary)]
    if summary.files:
        parts += [
            Text(),
            Text("Files", style="bold"),
            *(Text(f"  {path}") for path in summary.files),
        ]
    return Group(*parts)


def _opening(summary: Summary) -> list[str]:
    return [*standing(summary), *account(summary.run.search), *summary.run.notes]


def _outcomes(summary: Summary) -> Text:
    counts = (
        ", ".join(f"{number} {outcome.value}" for outcome, number in summary.counts.items())
        or "none finished"
    )
    spent = cells.cost(summary)
    return Text.assemble((f"{count(len(summary.rows), 'trial')}: ", "bold"), f"{counts}; {spent}")


def _cohort(summary: Summary, cohort: Cohort) -> list[RenderableType]:
    front = cohort.front
    parts: list[RenderableType] = [
        Text.assemble(
            ("Frontier", "bold"),
            f" on {cohort.hardware}: {len(front)} of ",
            count(len(cohort.points), "point"),
        )
    ]
    parts += [
        _dim(line) for line in (cells.scope(cohort), f"Memory is {cohort.memory_words}.") if line
    ]
    rows = cells.frontier_rows(summary, cohort)
    every = -(-len(front) // LONGEST)
    # Counted from the fastest, which is what most readers look for.
    parts.append(_table(rows[0], rows[1:][::-every][::-1], numbers=len(rows[0]) - 1))
    if every > 1:
        parts.append(_dim(f"  one point in {every} shown; all are in the report"))
    parts += [_dim(f"  {note}") for note in cells.frontier_notes(cohort)]
    if cohort.verdicts:
        rows = cells.budget_rows(summary, cohort)
        parts += [Text(), Text("Best in each budget", style="bold")]
        parts.append(_table(rows[0], rows[1:], numbers=len(rows[0]) - 1))
        parts += [_dim(f"  {note}") for note in cells.budget_notes(summary, cohort)]
    return parts


def _dim(line: str) -> Text:
    return Text(line, style="dim")


def _failures(summary: Summary) -> list[RenderableType]:
    seen = [
        failure for failure in summary.failures if failure.outcome is not Outcome.SKIPPED
    ] or summary.failures
    rows = [
        [str(len(failure.labels)), failure.outcome.value, failure.reason[:160]]
        for failure in seen[:5]
    ]
    left = len(summary.failures) - len(rows)
    more = [_dim(f"  and {left} more reasons, in the report")] if left else []
    return [
        Text("Not ok", style="bold"),
        _table(("trials", "outcome", "reason"), rows, numbers=1),
        *more,
    ]


def _warnings(summary: Summary) -> list[RenderableType]:
    rows = [
        [str(len(doubt.labels)), doubt.kind[:40], doubt.text[:160]] for doubt in summary.doubts[:5]
    ]
    return [Text("Warnings", style="bold"), _table(("trials", "kind", "warning"), rows, numbers=1)]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="bold")
    for place, heading in enumerate(headings):
        last = place == len(headings) - 1
        table.add_column(
            heading,
            justify="right" if place < numbers else "left",
            overflow="fold",
            no_wrap=not last,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table
