"""The flags of all trials, which a reader must know to trust the figures: a row for each kind."""

from jobs.flags import flags_of
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.grouping import grouped
from orchestrator.reporting import flags
from orchestrator.reporting.content import Column, Content, Format, Row, Table

COLUMNS = (
    Column(key="count", heading="trials", format=Format.COUNT),
    Column(key="heading", heading="warning"),
    Column(key="text", heading="figures"),
    Column(key="trials", heading="configurations", format=Format.TRIALS, is_detail=True),
)


def make(dataset: Dataset) -> Content | None:
    """A row for each kind of flag, the most frequent first."""
    flagged = [(flag, row) for row in dataset.rows for flag in flags_of(row)]
    if not flagged:
        return None
    rows: list[Row] = [
        {
            "count": len(members),
            "kind": kind.value,
            "heading": flags.heading(kind),
            "text": flags.description(kind, [flag.value for flag, _ in members]),
            "trials": [{"configuration": dataset.row_label(row)} for _, row in members],
        }
        for kind, members in grouped(flagged, lambda member: member[0].kind).items()
    ]
    rows.sort(key=lambda row: -row["count"])
    return Content(
        title="Warnings",
        text=("What to know before trusting a figure.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )
