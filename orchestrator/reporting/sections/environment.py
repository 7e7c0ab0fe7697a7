"""The hardware, the driver and the versions with which an environment's figures were measured."""

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.reporting.content import Column, Content, Table
from orchestrator.units import memory

COLUMNS = (Column(key="name", heading="name"), Column(key="value", heading="value"))


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each fact about the machine."""
    rows = []
    for name, value in sorted(results.environment.items()):
        if value not in ("", None):
            is_size = name.endswith("_bytes") and isinstance(value, (int, float))
            rows.append({"name": name, "value": memory(value) if is_size else str(value)})
    if not rows:
        return None
    return Content(
        title="Environment",
        text=(f"Rows of this environment have the id {results.environment_id}.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )
