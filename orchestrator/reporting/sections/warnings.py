"""The flags of all trials, which a reader must know to trust the figures: a row for each kind."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.flags import Flag, flags_of
from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting import flags
from orchestrator.reporting.content import Column, Content, Format, Row, RunSection, Table

COLUMNS = (
    Column(key="count", heading="trials", format=Format.COUNT),
    Column(key="heading", heading="warning"),
    Column(key="text", heading="figures"),
    Column(key="trials", heading="configurations", format=Format.TRIALS, is_detail=True),
)


def make(dataset: Dataset) -> Content | None:
    """A row for each kind of flag, the most frequent first."""
    rows = list(map(_row, flags.grouped(_flags(dataset))))
    if not rows:
        return None
    return Content(
        title="Warnings",
        text=("What to know before trusting a figure.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )


def _row(group: flags.FlagGroup) -> Row:
    return {
        "count": len(group.labels),
        "kind": group.kind.value,
        "heading": flags.heading(group.kind),
        "text": group.description,
        "trials": [{"configuration": label} for label in group.labels],
    }


def _flags(dataset: Dataset) -> Iterator[tuple[Flag, str]]:
    for row in dataset.rows:
        for flag in flags_of(row):
            yield flag, dataset.row_label(row)


SECTION = RunSection(name="warnings", make=make, terminal_rows=12)
