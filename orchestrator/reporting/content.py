"""The content of a report's section: sentences and tables of plain values, for any renderer."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.units import MIB, change, count, duration, error, memory, number

Row = Mapping[str, Any]
"""One row of a table: key -> plain JSON value. It may hold more than the columns show."""


class Format(enum.Enum):
    """How a column's values are written."""

    TEXT = enum.auto()
    COUNT = enum.auto()
    """An integer: ``1,234``."""
    NUMBER = enum.auto()
    """Three significant digits."""
    MEMORY = enum.auto()
    """Bytes: ``23.5 GiB``."""
    MEBIBYTES = enum.auto()
    """Bytes as whole MiB without the unit, as the Hugging Face guides print them."""
    CHANGE = enum.auto()
    """A ratio: ``+12 %``."""
    CI95 = enum.auto()
    """Half a relative interval: ``±0.4 %``."""
    SHARE = enum.auto()
    """A fraction: ``35.0 %``."""
    DURATION = enum.auto()
    """Seconds: ``3 min 20 s``."""
    CONFIGURATION = enum.auto()
    """The label of a configuration."""
    OUTCOME = enum.auto()
    """How a trial ended."""
    TRIALS = enum.auto()
    """Several trials: a list of rows with a ``configuration`` and perhaps a ``log_file``."""


_WORDS = (Format.TEXT, Format.CONFIGURATION, Format.OUTCOME, Format.TRIALS)


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

    @property
    def is_figure(self) -> bool:
        """Whether the column holds numbers, which are aligned to the right."""
        return self.format not in _WORDS

    def text(self, row: Row) -> str:
        """A row's value in this column as text, with its marks; empty if there is no value."""
        value = row.get(self.key)
        # Text is left as it is in every format.
        if isinstance(value, str):
            written = value
        elif value is None or (isinstance(value, float) and not math.isfinite(value)):
            written = ""
        else:
            written = _WRITERS[self.format](value)
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
    """One sentence about the table; empty if the section's text says enough."""
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
class AnySection:
    """A section of every report: its name in JSON and links, and where it is shown."""

    name: str
    terminal_rows: int = 0
    """How many rows of each table a terminal shows; 0: the terminal leaves the section out.
    Markdown and JSON have all rows of every section."""
    on_page: bool = True
    """Whether report.html shows its tables; it has interactive views in place of some."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSection(AnySection):
    """A section about the whole run."""

    make: Callable[[Dataset], Content | None]
    """None: there is nothing to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSection(AnySection):
    """A section about each environment that the run was measured in."""

    make: Callable[[Dataset, EnvironmentResults], Content | None]
    """None: there is nothing to say."""


def _trials(value: Sequence[Row]) -> str:
    """``batch 4 · bf16 and 3 others``."""
    labels = [str(trial["configuration"]) for trial in value]
    if len(labels) > 1:
        labels[1:] = [count(len(labels) - 1, "other")]
    return " and ".join(labels)


_WRITERS: Mapping[Format, Callable[[Any], str]] = {
    Format.TEXT: str,
    Format.CONFIGURATION: str,
    Format.OUTCOME: str,
    Format.TRIALS: _trials,
    Format.COUNT: "{:,}".format,
    Format.NUMBER: number,
    Format.MEMORY: memory,
    Format.MEBIBYTES: lambda value: f"{value / MIB:,.0f}",
    Format.CHANGE: change,
    Format.CI95: error,
    Format.SHARE: lambda value: f"{100 * value:.1f} %",
    Format.DURATION: duration,
}
"""Format -> the function that writes a value in this format."""
