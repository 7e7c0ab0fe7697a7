"""The flags of all trials, which a reader must know to trust the figures: a row for each kind."""

from __future__ import annotations

from jobs.flags import FlagKind, flags_of
from orchestrator.analysis.dataset import Dataset
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
    groups: dict[FlagKind, list[tuple[float | None, str]]] = {}
    for row in dataset.rows:
        for flag in flags_of(row):
            groups.setdefault(flag.kind, []).append((flag.value, dataset.row_label(row)))
    if not groups:
        return None
    rows: list[Row] = []
    for kind, flagged in groups.items():
        rows.append(
            {
                "count": len(flagged),
                "kind": kind.value,
                "heading": flags.heading(kind),
                "text": flags.description(kind, [value for value, _ in flagged]),
                "trials": [{"configuration": label} for _, label in flagged],
            }
        )
    rows.sort(key=lambda row: -row["count"])
    return Content(
        title="Warnings",
        text=("What to know before trusting a figure.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )
