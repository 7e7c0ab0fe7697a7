"""Times that each node spends once, outside the time of any trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.analysis.dataset import Dataset
from orchestrator.reporting.content import Column, Content, Format, Row, RunSection, Table

COLUMNS = (
    Column(key="node", heading="node"),
    Column(key="what", heading="what"),
    Column(key="cost", heading="time", format=Format.DURATION),
)


def make(dataset: Dataset) -> Content | None:
    """A row for each cost. Costs that are numbers are seconds."""
    rows = tuple(_rows(dataset))
    if not rows:
        return None
    return Content(
        title="One-time costs",
        text=("Paid once, outside every trial's time.",),
        tables=(Table(columns=COLUMNS, rows=rows),),
    )


def _rows(dataset: Dataset) -> Iterator[Row]:
    for node, costs in dataset.run.one_time_costs.items():
        # A run of an older version has one cost for a node, without names.
        if not isinstance(costs, Mapping):
            costs = {"all": costs}
        for what, cost in costs.items():
            if not isinstance(cost, (int, float)):
                cost = str(cost)
            yield {"node": node, "what": what, "cost": cost}


SECTION = RunSection(name="one_time_costs", make=make)
