"""The published tables' columns as a page: ``python -m orchestrator.reporting.schema_page > docs/schema.md``."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.record import Column
from orchestrator.reporting.markdown import table
from orchestrator.storage.tables.anatomy_rows import PARTS
from orchestrator.storage.tables.columns import (
    ANATOMY_COLUMNS,
    BASE,
    FOLLOW_UP,
    FRONTIER_COLUMNS,
    STEP_COLUMNS,
    declared_columns,
)

INTRODUCTION = """# Table schema

Generated from the code by `python -m orchestrator.reporting.schema_page`; each file carries the same units and meanings in
its Arrow field metadata (`unit`, `doc`), and the run, its config, command, environments and the tool's version in the
schema's (`run`, `config`, `command`, `environments`, `tool_version`). What was not measured is null. Bytes are
integers, times are seconds."""


def render() -> str:
    """The page as Markdown."""
    parts = [
        ("trials.parquet: one row a trial", "", (*BASE, *FOLLOW_UP)),
        (
            "trials.parquet: one column an axis",
            "Every axis of the sweep but `micro_batch` and `accumulation` (above) adds a column of its name, marked\n"
            "with `axis` in its metadata: a string for techniques, the value's own type for a plain training\n"
            "argument, which becomes `argument_<name>` where a measurement has its name.",
            (),
        ),
        (
            "trials.parquet: measurements",
            "Null unless the trial came far enough to measure.",
            declared_columns(),
        ),
        ("steps.parquet: one row an optimizer step", "", STEP_COLUMNS),
        (
            "anatomy.parquet: one row a figure of a trial that was taken apart",
            "Of the trials that `measure.anatomy` names; a configuration's is often its follow-up's (`follows` in\n"
            "`trials.parquet`).",
            ANATOMY_COLUMNS,
        ),
        (
            "anatomy.parquet: its parts",
            "\n".join(table(["part", "meaning"], PARTS.items(), left=2)),
            (),
        ),
        (
            "frontier.parquet: one row a configuration on a frontier",
            "Every configuration that none with the same `equivalence` beats, `on_frontier` where none of its kind of\n"
            "training does. The columns of `trials.parquet`, of the configuration's first repeat, and:",
            FRONTIER_COLUMNS,
        ),
    ]
    return "\n".join([INTRODUCTION, *(line for part in parts for line in _section(*part))]) + "\n"


def _section(heading: str, note: str, columns: Sequence[Column]) -> list[str]:
    rows = [[column.name, column.type, column.unit, column.doc] for column in columns]
    lines = table(["column", "type", "unit", "meaning"], rows, left=4) if rows else []
    return ["", f"## {heading}", *(["", note] if note else []), *(["", *lines] if lines else [])]


if __name__ == "__main__":
    print(render(), end="")
