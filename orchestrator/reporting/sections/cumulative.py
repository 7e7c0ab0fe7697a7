"""Techniques added one by one to the baseline: each time the one that saves the most memory."""

from orchestrator.analysis.dataset import Dataset, EnvironmentResults
from orchestrator.analysis.technique_effects import cumulative_steps, useful_micro_batch
from orchestrator.labels import batch_label
from orchestrator.reporting.configurations import MEMORY, SPEED, mark_notes, row_of
from orchestrator.reporting.content import Column, Content, Format, Table

COLUMNS = (
    Column(key="added", heading="added"),
    MEMORY,
    Column(key="memory_ratio", heading="to baseline", format=Format.CHANGE, better="less"),
    SPEED,
    Column(key="speed_ratio", heading="to baseline", format=Format.CHANGE, better="more"),
)


def make(dataset: Dataset, results: EnvironmentResults) -> Content | None:
    """A row for each step, at the useful micro-batch, else at the baseline's."""
    configurations, baseline = results.configurations, results.baseline
    useful = {**baseline, "micro_batch": useful_micro_batch(configurations, baseline)}
    steps = cumulative_steps(configurations, useful) or cumulative_steps(configurations, baseline)
    if not steps:
        return None
    _, start = steps[0]
    rows = []
    for axis, own in steps:
        added = f"{axis} {own.choices[axis]}" if axis else "baseline"
        step = {
            "axis": axis or None,
            "added": batch_label(own.choices) if axis == "accumulation" else added,
            "memory_ratio": own.memory_bytes / start.memory_bytes,
            "speed_ratio": own.samples_per_second / start.samples_per_second,
        }
        rows.append({**row_of(dataset, results, own), **step})
    return Content(
        title="Cumulative effect",
        text=(
            f"One technique on top of another, at an effective batch of {start.effective_batch}.",
            "The one with least memory comes next; other training recipes come last.",
        ),
        tables=(Table(columns=COLUMNS, rows=tuple(rows)),),
        notes=mark_notes(results, [own for _, own in steps]),
    )
