"""A report as Markdown: for a README, a pull request or a reader without a browser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from orchestrator.analysis.dataset import EnvironmentResults
from orchestrator.reporting.content import Table
from orchestrator.reporting.report import Part, Report


def render(report: Report, *, picture: str = "") -> str:
    """The whole report; ``picture`` is the path of the front's image, relative to the report."""
    lines = [f"# {text(report.dataset.name or 'Run')}", "", text(f"{report.headline}."), ""]
    environment: EnvironmentResults | None = None
    is_open = False
    for part in report.parts:
        if part.content.title and not is_open:
            lines += _command_and_picture(report, picture)
            is_open = True
        if part.environment is not None and part.environment is not environment:
            environment = part.environment
            lines += [f"## {text(environment.hardware)}", ""]
        lines += _part(part)
    if not is_open:
        lines += _command_and_picture(report, picture)
    return "\n".join(lines).rstrip() + "\n"


def _command_and_picture(report: Report, picture: str) -> list[str]:
    lines = []
    if report.dataset.run.command:
        lines += ["```console", *report.dataset.run.command.splitlines(), "```", ""]
    if picture and report.dataset.environments:
        lines += [f"![Memory against speed, with the Pareto front]({picture})", ""]
    return lines


def _part(part: Part) -> list[str]:
    content = part.content
    lines = []
    if content.title:
        level = "##" if part.environment is None else "###"
        lines += [f"{level} {text(content.title)}", ""]
    lines += _sentences(content.text)
    for table in content.tables:
        lines += _sentences([table.caption] if table.caption else [])
        lines += [*_table(table), ""]
    return lines + _sentences(content.notes)


def _sentences(sentences: Iterable[str]) -> list[str]:
    lines = []
    for sentence in sentences:
        lines += [text(sentence), ""]
    return lines


def _table(table: Table) -> list[str]:
    columns = table.shown_columns
    return grid(
        [column.heading for column in columns],
        [[column.text(row) for column in columns] for row in table.rows],
        [column.is_figure for column in columns],
    )


def grid(
    headings: Sequence[str], rows: Iterable[Sequence[str]], flush_right: Sequence[bool] = ()
) -> list[str]:
    """A table's lines; ``flush_right`` says which columns are (empty: none)."""
    rule = ["---:" if right else "---" for right in flush_right] or ["---"] * len(headings)
    cells = [[text(cell) for cell in row] for row in rows]
    return [_line(row) for row in ([text(heading) for heading in headings], rule, *cells)]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(value: str) -> str:
    """Foreign text as one harmless Markdown cell: no markup, no table bars, no line breaks."""
    flat = html.escape(" ".join(value.split()), quote=False)
    return re.sub(r"[\\`*\[\]|#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", flat)
