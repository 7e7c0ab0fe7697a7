"""The hardware, the driver and the versions with which an environment's figures were measured."""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.content import Column, Content, EnvironmentSection, Row, Table
from orchestrator.units import memory

COLUMNS = (Column(key="name", heading="name"), Column(key="value", heading="value"))


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each fact about the machine."""
    rows = []
    for name, value in sorted(results.environment.items()):
        if value not in ("", None):
            rows.append(_row(name, value))
    if not rows:
        return None
    return Content(
        title="Environment",
        text=(f"Rows of this environment have the id {results.environment_id}.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )


def _row(name: str, value: Any) -> Row:
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return {"name": name, "value": memory(value)}
    return {"name": name, "value": str(value)}


SECTION = EnvironmentSection(name="environment", make=make)
