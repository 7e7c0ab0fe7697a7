"""The summary printed at the end of a run: short sections, then the paths of the files."""

import json
import shlex
import sys
from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from orchestrator.reporting.content import Format, Table
from orchestrator.reporting.json_output import to_json
from orchestrator.reporting.report import Report, ReportPart
from orchestrator.reporting.sections.headline import first_budget
from orchestrator.reporting.terminal.safe_text import raw_stream, shortened, visible
from orchestrator.units import GIB, MIB, count

_WIDTH = 96
_WIDER_THAN_ANY_TABLE = 2000


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # ``cli.finish`` handles a broken pipe; rich would end the process here


def print_summary(report: Report, console: Console | None = None, *, as_json: bool = False) -> None:
    """Print the summary of a run, or the same as JSON. A table is as wide as the terminal; without
    one as its content, so that no cell is wrapped."""
    if as_json:
        print(json.dumps(to_json(report), indent=2))
        return
    if console is None:
        # The console writes colours of its own, so each text is made visible before it gets there.
        console = _Console(file=raw_stream(sys.stdout))
        if not console.is_terminal:
            console.width = _WIDER_THAN_ANY_TABLE
            with console.capture() as captured:
                console.print(render(report))
            # Tables and wrapped lines are filled with spaces.
            print("\n".join(map(str.rstrip, captured.get().splitlines())))
            return
    console.print(render(report))


def render(report: Report) -> RenderableType:
    """The summary in a form that rich can print."""
    trials, _, rest = report.headline.partition(": ")
    headline = Text.assemble((f"{trials}: ", "bold"), visible(rest))
    lines: list[RenderableType] = [Constrain(headline, _WIDTH)]
    for part in report.parts:
        if part.section.terminal_rows:
            lines += _part(part)
    if report.files:
        lines += [Text(), Text("Files", style="bold")]
    for path in report.files:
        lines.append(Text(visible(f"  {path}")))
    if report.files and report.dataset.main is not None:
        folder = shlex.quote(str(report.files[0].parent))
        within = _memory_option(first_budget(report.dataset))
        ask = f"python -m orchestrator.recommend {folder}{within} --export my-training"
        lines.append(Text(visible(f"next: {ask}")))
    return Group(*lines)


def _memory_option(budget: int | None) -> str:
    if budget is None:
        return ""
    unit, name = (MIB, "MiB") if budget < GIB else (GIB, "GiB")
    return f" --memory {budget / unit:g}{name}"


def _part(part: ReportPart) -> Iterator[RenderableType]:
    content = part.content
    if content.title:
        hardware = "" if part.environment is None else f" on {part.environment.hardware}"
        yield Text()
        yield Text.assemble((content.title, "bold"), visible(hardware))
    yield from map(_dim, content.text)
    for table in content.tables:
        yield from _table(table, part.section.terminal_rows)
    for note in content.notes:
        yield _dim(note, indent=2)


def _dim(line: str, indent: int = 0) -> RenderableType:
    dimmed = Padding(Text(visible(line), style="dim"), (0, 0, 0, indent), expand=False)
    return Constrain(dimmed, _WIDTH)


def _table(table: Table, room: int) -> Iterator[RenderableType]:
    columns = [column for column in table.shown_columns if not column.is_detail]
    grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True, header_style="bold")
    for column in columns:
        grid.add_column(
            Text(visible(column.heading)),
            justify="right" if column.format.is_figure else "left",
            no_wrap=column.format not in (Format.TEXT, Format.CONFIGURATION),
        )
    rows = table.rows[:room]
    if table.is_curve:
        # Every n-th row, rounded up, counted from the last and fastest, which readers look for.
        every = -(-len(table.rows) // room) or 1
        rows = table.rows[::-every][::-1]
    for row in rows:
        cells = [shortened(visible(column.text(row)), 200) for column in columns]
        grid.add_row(*map(Text, cells))
    yield grid
    left_out = len(table.rows) - len(rows)
    if left_out:
        yield _dim(f"{count(left_out, 'more row')} in the report", indent=2)
