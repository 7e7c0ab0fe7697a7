"""The printed end of a run: the frontier, the best in each budget, what came of the trials, where the files are."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.record import Outcome
from orchestrator.results.summary import Cohort, Summary
from orchestrator.results.words import count, duration, memory, number

WIDTH = 96
LONGEST = 20


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Print the end of a run; under 100 columns, and plain text where the output is no terminal."""
    console = console or Console()
    console.print(render(summary), width=min(WIDTH, console.width) if console.is_terminal else WIDTH)


def render(summary: Summary) -> RenderableType:
    """The same as something rich can print."""
    parts: list[RenderableType] = [_outcomes(summary)]
    for cohort in summary.cohorts:
        parts += [Text(), *_cohort(summary, cohort)]
    if summary.failures:
        parts += [Text(), *_failures(summary)]
    if summary.files:
        parts += [Text(), Text("Files", style="bold"), *(Text(f"  {path}") for path in summary.files)]
    return Group(*parts)


def _outcomes(summary: Summary) -> Text:
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in summary.counts.items()) or "none finished"
    spent = f"{duration(summary.busy_seconds)} of slot time"
    return Text.assemble((f"{count(len(summary.rows), 'trial')}: ", "bold"), f"{counts}; {spent}")


def _cohort(summary: Summary, cohort: Cohort) -> list[RenderableType]:
    front, trainings = cohort.front, len(cohort.fronts)
    note = f", across {trainings} kinds of training (each alone: see the report)" if trainings > 1 else ""
    parts: list[RenderableType] = [
        Text.assemble(
            ("Frontier", "bold"), f" on {cohort.hardware}: {len(front)} of ", count(len(cohort.points), "point"), note
        ),
        Text(f"Memory is {cohort.memory_words}.", style="dim"),
    ]
    table = _table("memory", "samples/s", "configuration")
    shown = front if len(front) <= LONGEST else front[:: -(-len(front) // LONGEST)]
    for point in shown:
        table.add_row(memory(point.memory_bytes), number(point.samples_per_second), Text(summary.label(point)))
    parts.append(table)
    if len(shown) < len(front):
        parts.append(Text(f"  every {-(-len(front) // LONGEST)}. point shown; all are in the report", style="dim"))
    if cohort.verdicts:
        best = _table("budget", "samples/s", "fastest that fits")
        for verdict in cohort.verdicts:
            name = Text(summary.label(verdict.best) if verdict.best else "nothing measured fits")
            speed = number(verdict.best.samples_per_second) if verdict.best else "–"
            best.add_row(memory(verdict.budget_bytes), speed, name)
        parts += [Text(), Text("Best in each budget", style="bold"), best]
    return parts


def _failures(summary: Summary) -> list[RenderableType]:
    table = _table("trials", "outcome", "reason", numbers=1)
    seen = [failure for failure in summary.failures if failure.outcome is not Outcome.SKIPPED]
    for failure in (seen or summary.failures)[:5]:
        table.add_row(str(len(failure.labels)), failure.outcome.value, Text(failure.reason[:160]))
    left = len(summary.failures) - min(5, len(seen or summary.failures))
    more = [Text(f"  and {left} more reasons, in the report", style="dim")] if left else []
    return [Text("Not ok", style="bold"), table, *more]


def _table(*headings: str, numbers: int = 2) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="bold")
    for place, heading in enumerate(headings):
        last = place == len(headings) - 1
        table.add_column(heading, justify="right" if place < numbers else "left", overflow="fold", no_wrap=not last)
    return table
