"""The report as Markdown: for a README, a pull request or a reader without a browser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.analysis.summary import Cohort, Summary
from orchestrator.reporting import anatomy, cells
from orchestrator.reporting.search_summary import account, standing
from orchestrator.units import change, count, duration, memory, number


def render(summary: Summary, *, picture: str = "") -> str:
    """The whole report; ``picture`` is the frontier's image, as a path relative to where the text will lie."""
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in summary.counts.items())
    lines = [f"# {text(summary.run.name or 'Run')}", ""]
    lines += [f"{count(len(summary.rows), 'trial')}: {counts}; {cells.cost(summary)}.", ""]
    lines += _notes([*standing(summary), *account(summary.run.search), *summary.run.notes])
    if summary.run.command:
        lines += ["```console", *summary.run.command.splitlines(), "```", ""]
    if picture and summary.cohorts:
        lines += [f"![Memory against speed, with the frontier]({picture})", ""]
    for cohort in summary.cohorts:
        lines += _cohort(summary, cohort)
    lines += [*_failures(summary), *_warnings(summary), *_costs(summary)]
    return "\n".join(lines).rstrip() + "\n"


def _cohort(summary: Summary, cohort: Cohort) -> list[str]:
    front, budgets = cells.frontier_rows(summary, cohort), cells.budget_rows(summary, cohort)
    scope = cells.scope(cohort)
    lines = [
        f"## {text(cohort.hardware)}",
        "",
        f"Memory is {cohort.memory_words}.",
        "",
        "### Frontier",
        "",
    ]
    lines += [text(scope), ""] if scope else []
    lines += [
        *table(front[0], front[1:], numbers=len(front[0]) - 1),
        "",
        *_notes(cells.frontier_notes(cohort)),
    ]
    lines += [
        "### Best in each budget",
        "",
        *table(budgets[0], budgets[1:], numbers=len(budgets[0]) - 1),
        "",
    ]
    lines += [*_notes(cells.budget_notes(summary, cohort)), *_guide(summary, cohort)]
    lines += _anatomy(summary, cohort)
    return [*lines, *_effects(cohort), *_stages(cohort), *_environment(cohort)]


def _notes(notes: Iterable[str]) -> list[str]:
    return [line for note in notes for line in (text(note), "")]


def _guide(summary: Summary, cohort: Cohort) -> list[str]:
    rows = cells.guide_table(summary, cohort)
    if not rows:
        return []
    return [
        "### As the guide measures",
        "",
        *_notes(cells.guide_notes(cohort)),
        *table(rows[0], rows[1:], left=1),
        "",
    ]


def _anatomy(summary: Summary, cohort: Cohort) -> list[str]:
    tables = (
        make(summary, cohort)
        for make in (anatomy.memory_rows, anatomy.time_rows, anatomy.module_rows)
    )
    lines = [line for rows in tables if rows for line in (*table(rows[0], rows[1:], left=1), "")]
    return ["### Where memory and time go", "", *_notes(anatomy.notes()), *lines] if lines else []


def _effects(cohort: Cohort) -> list[str]:
    if not cohort.effects:
        return []
    rows = [
        [
            e.axis,
            str(e.value),
            str(e.baseline),
            cells.alike(e),
            change(e.memory_ratio),
            change(e.speed_ratio),
            str(e.pairs),
        ]
        for e in cohort.effects
    ]
    headings = ["axis", "with", "in place of", "training", "memory", "samples/s", "pairs"]
    note = "Medians over pairs of configurations that differ in nothing else."
    return ["### What each technique did", "", note, "", *table(headings, rows, left=4), ""]


def _stages(cohort: Cohort) -> list[str]:
    rows = [
        [
            cells.stage_name(stage, cohort),
            memory(stage.point.memory_bytes),
            change(stage.memory_ratio),
            number(stage.point.samples_per_second),
            change(stage.speed_ratio),
        ]
        for stage in cohort.stages
    ]
    headings = ["one on top of the other", "memory", "to baseline", "samples/s", "to baseline"]
    return ["### Cumulative effect", "", *table(headings, rows, left=1), ""] if rows else []


def _environment(cohort: Cohort) -> list[str]:
    rows = [
        [name, str(value)]
        for name, value in sorted(cohort.environment.items())
        if value not in ("", None)
    ]
    return (
        ["### Environment", "", *table(["", cohort.environment_id], rows, left=2), ""]
        if rows
        else []
    )


def _failures(summary: Summary) -> list[str]:
    if not summary.failures:
        return []
    rows = [
        [
            str(len(f.labels)),
            f.outcome.value,
            f.phase,
            " — ".join(part for part in (f.rule, f.reason) if part),
            first,
        ]
        for f in summary.failures
        for first in [f.labels[0] + (" …" if len(f.labels) > 1 else "")]
    ]
    return [
        "## Not ok",
        "",
        *table(["trials", "outcome", "phase", "reason", "configuration"], rows, numbers=1),
        "",
    ]


def _warnings(summary: Summary) -> list[str]:
    rows = [[str(len(doubt.labels)), doubt.kind, doubt.text] for doubt in summary.doubts]
    return (
        ["## Warnings", "", *table(["trials", "kind", "warning"], rows, numbers=1), ""]
        if rows
        else []
    )


def _costs(summary: Summary) -> list[str]:
    by_node = summary.run.one_time_costs
    flat = {
        f"{name} on {node}": cost
        for node, costs in by_node.items()
        for name, cost in (costs.items() if isinstance(costs, Mapping) else [("all", costs)])
    }
    rows = [
        [name, duration(cost) if isinstance(cost, (int, float)) else str(cost)]
        for name, cost in flat.items()
    ]
    return (
        ["## Paid once, outside every trial", "", *table(["what", "cost"], rows, left=2), ""]
        if rows
        else []
    )


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: int = 0,
    left: int | None = None,
) -> list[str]:
    """A table's lines: the first ``numbers`` columns flush right, or all but the first ``left``."""
    right = {i for i in range(len(headings)) if (i < numbers if left is None else i >= left)}
    rule = ["---:" if i in right else "---" for i in range(len(headings))]
    cells = [[text(cell) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in ([text(h) for h in headings], rule, *cells)]


def text(value: str) -> str:
    """Foreign text as one harmless Markdown cell: no markup, no table bars, no line breaks."""
    flat = html.escape(" ".join(value.split()), quote=False)
    return re.sub(r"[\\`*\[\]|#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", flat)
