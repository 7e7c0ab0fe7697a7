"""The content of a report's section: sentences and tables of plain values, for any renderer."""

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.units import MIB, change, count, duration, error, memory, number

Row = Mapping[str, Any]
"""One row of a table: key -> plain JSON value. It may hold more than the columns show."""


def _trials(value: Sequence[Row]) -> str:
    """``batch 4 · bf16 and 3 others``."""
    labels = [str(trial["configuration"]) for trial in value]
    if len(labels) > 1:
        labels[1:] = [count(len(labels) - 1, "other")]
    return " and ".join(labels)


class Format(enum.Enum):
    """How values are written: whether they are figures, flush right, and the function."""

    TEXT = ("text", str)
    CONFIGURATION = ("configuration", str)
    """The label of a configuration."""
    OUTCOME = ("outcome", str)
    """How a trial ended."""
    TRIALS = ("trials", _trials)
    """Several trials: a list of rows with a ``configuration`` and perhaps a ``log_file``."""
    COUNT = ("figure", "{:,}".format)
    """An integer: ``1,234``."""
    NUMBER = ("figure", number)
    """Three significant digits."""
    MEMORY = ("figure", memory)
    """Bytes: ``23.5 GiB``."""
    MEBIBYTES = ("figure", lambda value: f"{value / MIB:,.0f}")
    """Bytes as whole MiB without the unit, as the Hugging Face guides print them."""
    CHANGE = ("figure", change)
    """A ratio: ``+12 %``."""
    CI95 = ("figure", error)
    """Half a relative interval: ``±0.4 %``."""
    SHARE = ("figure", lambda value: f"{100 * value:.1f} %")
    """A fraction: ``35.0 %``."""
    DURATION = ("figure", duration)
    """Seconds: ``3 min 20 s``."""

    def __init__(self, kind: str, write: Callable[[Any], str]) -> None:
        self.is_figure = kind == "figure"
        self.write = write


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table."""

    key: str
    heading: str
    format: Format = Format.TEXT
    marks: str = ""
    """The key of a row's list of marks that stand before the figure."""
    better: Literal["", "more", "less"] = ""
    """Whether more or less than 1 is an improvement, for ratios."""
    is_detail: bool = False
    """Whether the column may be left out for lack of room."""

    def text(self, row: Row) -> str:
        """A row's value in this column as text, with its marks; empty if there is no value."""
        value = row.get(self.key)
        # Text is left as it is in every format.
        if isinstance(value, str):
            written = value
        elif value is None or (isinstance(value, float) and not math.isfinite(value)):
            written = ""
        else:
            written = self.format.write(value)
        return " ".join([*(row.get(self.marks) or ()), written]) if written else ""

    def tone(self, row: Row) -> Literal["", "good", "bad"]:
        """Whether a ratio is an improvement; empty for other values and for ratios near 1."""
        value = row.get(self.key)
        if not self.better or not isinstance(value, (int, float)):
            return ""
        # What rounds to 0 % is neither good nor bad.
        if 0.995 <= value <= 1.005:
            return ""
        return "good" if (value > 1) == (self.better == "more") else "bad"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows and the columns that show them."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    name: str = "rows"
    """The table's key in JSON; unique within a section."""
    caption: str = ""
    """One sentence; empty if the section's text says enough."""
    is_curve: bool = False
    """Whether a table that is too long shows evenly spaced rows instead of its first rows."""

    @property
    def is_wide(self) -> bool:
        """Whether the table needs the whole width of a page."""
        # Five columns fit into half the width. Lists of trials fold out, which needs all of it.
        formats = [column.format for column in self.shown_columns]
        return Format.TRIALS in formats or len(formats) > 5

    @property
    def names_configurations(self) -> bool:
        """Whether a column holds the labels of configurations."""
        return Format.CONFIGURATION in [column.format for column in self.columns]

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns that have text in at least one row."""
        return tuple(own for own in self.columns if any(own.text(row) for row in self.rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """The content of one section for one run: sentences, tables, and notes about their marks."""

    title: str
    """The section's heading; empty for the sentences that open the report."""
    text: tuple[str, ...] = ()
    """Sentences above the tables."""
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences below the tables."""

    @property
    def is_wide(self) -> bool:
        """Whether a table needs the whole width of a page."""
        return any(table.is_wide for table in self.tables)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportSection:
    """A section of every report: its name in JSON and links, and where it is shown."""

    name: str
    make: Callable[..., Content | None]
    """Of the data set, and of an environment's results, too; None: there is nothing to say."""
    of_environments: bool = False
    """Whether it is about each environment that the run was measured in, or the whole run."""
    terminal_rows: int = 0
    """How many rows of each table a terminal shows; 0: the terminal leaves the section out."""
    on_page: bool = True
    """Whether report.html shows its tables; it has interactive views in place of some."""
