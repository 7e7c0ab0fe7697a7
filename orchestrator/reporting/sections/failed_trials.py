"""Trials that did not end ok: a row for each skipping rule, and for each kind of failure."""

import re
from collections.abc import Mapping
from typing import Any

from jobs.record import Outcome
from orchestrator.analysis.batch_size_answer import OUT_OF_MEMORY
from orchestrator.analysis.dataset import Dataset
from orchestrator.analysis.grouping import grouped
from orchestrator.reporting.content import Column, Content, Format, Row, Table
from orchestrator.storage.layout import LOGS

COLUMNS = (
    Column(key="count", heading="trials", format=Format.COUNT),
    Column(key="outcome", heading="outcome", format=Format.OUTCOME),
    Column(key="rule", heading="rule"),
    Column(key="phase", heading="phase", is_detail=True),
    Column(key="reason", heading="reason"),
    Column(key="trials", heading="configurations", format=Format.TRIALS, is_detail=True),
)


def make(dataset: Dataset) -> Content | None:
    """One row for each kind of failure. None if every trial ended ok."""
    groups = grouped((row for row in dataset.rows if row["outcome"] != Outcome.OK), _kind)
    if not groups:
        return None
    rows = [_row(dataset, group) for group in groups.values()]
    rows.sort(key=lambda row: (row["outcome"] == Outcome.SKIPPED, -row["count"]))
    return Content(
        title="Failed and skipped",
        text=(
            "Trials that ended the same way share a row, with the reason of one of them. "
            "trials.parquet holds every reason.",
        ),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )


def _kind(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Trials with equal values share a row; figures in their reasons may differ."""
    reason = row["reason"] or ""
    if row["outcome"] == Outcome.SKIPPED and row["rule"]:
        reason = ""
    elif row["outcome"] in OUT_OF_MEMORY:
        # "Tried to allocate 2.5 GiB" and "1.3 GiB" are the same kind of failure.
        reason = re.sub(r"\d+(\.\d+)?", "0", reason)
    return row["outcome"], row["rule"] or "", row["phase"] or "", reason


def _row(dataset: Dataset, rows: list[Mapping[str, Any]]) -> Row:
    first = rows[0]
    trials = []
    for row in rows:
        trial = {"configuration": dataset.row_label(row), "trial_id": row["trial_id"]}
        log = str(row.get("log_file") or "")
        # It becomes a link, so a file elsewhere than among the run's logs is left out.
        if re.fullmatch(rf"{LOGS}/\w+\.txt", log):
            trial["log_file"] = log
        trials.append(trial)
    return {
        "count": len(rows),
        "outcome": str(Outcome(first["outcome"])),
        "rule": first["rule"] or "",
        "phase": first["phase"] or "",
        "reason": first["reason"] or "",
        "trials": trials,
    }
