"""A report as Markdown: for a README, a pull request, or the card of a run on the Hub."""

import html
import itertools
import re
from collections.abc import Iterable, Sequence
from operator import attrgetter

import yaml

from orchestrator.distribution import can_draw
from orchestrator.reporting.report import Report, ReportPart
from orchestrator.reporting.terminal.safe_text import visible
from orchestrator.storage import layout


def render(report: Report) -> str:
    """The whole report, with the image of the frontier beside it."""
    lines = [f"# {text(report.dataset.name or 'Run')}", "", text(f"{report.headline}."), ""]
    # Sections without a title open the report. The command and the picture come after them.
    for part in report.parts:
        if not part.content.title:
            lines += _part(part)
    lines += _command(report.dataset.run.command)
    if report.dataset.environments and can_draw():
        lines += [f"![Memory against speed, with the Pareto front]({layout.FRONTIER_PLOT})", ""]
    titled = [part for part in report.parts if part.content.title]
    for environment, parts in itertools.groupby(titled, key=attrgetter("environment")):
        if environment is not None:
            lines += [f"## {text(environment.hardware)}", ""]
        for part in parts:
            lines += _part(part)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: str) -> list[str]:
    """The command as a code block; empty if it is not known."""
    shown = visible(command)
    # More backticks than any run of them in the command, so that nothing in it ends the block.
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}console", *shown.splitlines(), fence, ""] if shown else []


def _part(part: ReportPart) -> list[str]:
    content = part.content
    lines: list[str] = []
    if content.title:
        # Sections of an environment stand under its hardware's heading.
        level = "##" if part.environment is None else "###"
        lines += [f"{level} {text(content.title)}", ""]
    lines += _sentences(content.text)
    for table in content.tables:
        lines += _sentences(filter(None, [table.caption]))
        columns = table.shown_columns
        headings = [column.heading for column in columns]
        rows = [[column.text(row) for column in columns] for row in table.rows]
        lines += [*grid(headings, rows, [column.format.is_figure for column in columns]), ""]
    return lines + _sentences(content.notes)


def _sentences(sentences: Iterable[str]) -> list[str]:
    return [line for sentence in sentences for line in (text(sentence), "")]


def grid(
    headings: Sequence[str], rows: Iterable[Sequence[str]], flush_right: Sequence[bool] = ()
) -> list[str]:
    """The lines of a table; by default all columns are aligned to the left."""
    rule = ["---:" if is_right else "---" for is_right in flush_right] or ["---"] * len(headings)
    return [line(map(text, headings)), line(rule), *(line(map(text, row)) for row in rows)]


def line(cells: Iterable[str]) -> str:
    """One line of a table; the cells are Markdown already."""
    return f"| {' | '.join(cells)} |"


def text(value: str) -> str:
    """Any text as one Markdown cell, with markup and table bars escaped and without line breaks."""
    flat = html.escape(visible(" ".join(value.split())), quote=False)
    # An underscore within a word, as in a column's name, is not markup.
    return re.sub(r"[\\`*\[\]|#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", flat)


_TAGS = ["benchmark", "training", "gpu-memory", "throughput", "pareto-front"]
_LOADING = """\
## Load it

```python
import datasets
from orchestrator import api

# One row a trial; units and meanings are in the file.
rows = datasets.load_dataset("{repository}", "trials", split="train")
# Answers questions: run.frontier(), run.recommend(...), run.compare(...).
run = api.load("{uri}")
```
"""


def dataset_card(report: Report, uri: str) -> str:
    """The card of the run at ``uri`` (``hf://datasets/...``), with its tables for the viewer."""
    dataset = report.dataset
    hardware = ", ".join(dict.fromkeys(results.hardware for results in dataset.environments))
    name = dataset.name or "Run"
    # The Hub's viewer calls each Parquet file a "configuration", with a name of its own.
    tables = []
    for path in sorted(report.files):
        if path.suffix == ".parquet":
            default = {"default": True} if path.name == layout.TRIALS else {}
            tables.append({"config_name": path.stem, "data_files": path.name, **default})
    pretty = f"{name} on {hardware}" if hardware else name
    front = {"pretty_name": pretty, "tags": _TAGS, "configs": tables}
    header = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    # The repository is the OWNER/NAME of hf://datasets/OWNER/NAME/...
    repository = "/".join(uri.split("/")[3:5])
    loading = _LOADING.format(repository=repository, uri=uri)
    return f"---\n{header}---\n\n{render(report)}\n{loading}"
