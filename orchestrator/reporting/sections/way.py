"""From the user's own arguments to the pick of each memory budget, over what was measured."""

from itertools import pairwise

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.technique_effects import labelled_way
from orchestrator.reporting.configurations import MEMORY, SPEED, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, Format, Table
from orchestrator.units import memory

_COLUMNS = (
    Column(key="step", heading="step"),
    SPEED,
    Column(key="speed_ratio", heading="by the step", format=Format.CHANGE, better="more"),
    MEMORY,
    Column(key="memory_ratio", heading="by the step", format=Format.CHANGE, better="less"),
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A table for each pick that steps lead to, of a search for budgets; None if none do."""
    search = dataset.run.search_summary
    if search is None or not search.answers_budgets:
        return None
    start = results.asked_baseline
    picks: dict[Configuration, int] = {}
    for pick in results.budget_picks if dataset.run.budgets else ():
        if pick.best is not None and pick.best is not start:
            picks.setdefault(pick.best, pick.budget_bytes)
    if start is None or not picks:
        return None
    tables = [_table(dataset, results, start, own, budget) for own, budget in picks.items()]
    return Content(
        title="From your arguments to the pick",
        text=("Each step adds techniques to the one before; its batch may be another.",),
        tables=tuple(tables),
        notes=mark_notes(results, [start, *picks]),
    )


def _table(
    dataset: Dataset,
    results: EnvironmentResults,
    start: Configuration,
    pick: Configuration,
    budget: int,
) -> Table:
    steps = list(labelled_way(results.configurations, start, pick))
    rows = [{**row_of(dataset, results, start), "step": "your arguments"}]
    for (_, before), (label, after) in pairwise(steps):
        ratios = {
            "speed_ratio": after.samples_per_second / before.samples_per_second,
            "memory_ratio": after.memory_bytes / before.memory_bytes,
        }
        rows.append({**row_of(dataset, results, after), "step": label, **ratios})
    caption = f"Within {memory(budget)}."
    return Table(columns=_COLUMNS, rows=tuple(rows), name=f"within_{budget}", caption=caption)
