"""Times that each node spends once, outside the time of any trial."""

from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.content import Column, Content, Format, Row, Table

COLUMNS = (
    Column(key="node", heading="node"),
    Column(key="what", heading="what"),
    Column(key="cost", heading="time", format=Format.DURATION),
)


def make(dataset: Dataset) -> Content | None:
    """A row for each cost. Costs that are numbers are seconds."""
    rows: list[Row] = []
    for node, costs in dataset.run.one_time_costs.items():
        for what, cost in costs.items():
            is_time = isinstance(cost, (int, float))
            rows.append({"node": node, "what": what, "cost": cost if is_time else str(cost)})
    if not rows:
        return None
    return Content(
        title="One-time costs",
        text=("Paid once, outside every trial's time.",),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
    )
