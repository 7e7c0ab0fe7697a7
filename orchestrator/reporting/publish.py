"""Publish a run: from its records to every table and page in its folder."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, build_dataset
from orchestrator.analysis.pareto import fronts_by
from orchestrator.distribution import can_draw
from orchestrator.reporting import markdown
from orchestrator.reporting.html import page
from orchestrator.reporting.plots import frontier
from orchestrator.reporting.report import Report
from orchestrator.reporting.verbs import tune_result
from orchestrator.storage import layout
from orchestrator.storage.run_reader import RunContents, read_run_folder
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.columns import FRONTIER_COLUMNS
from orchestrator.storage.tables.table_reader import refuse_fewer_rows


def publish(run_folder: Path, *, keeps_rows: bool = False) -> Report:
    """Write tables and pages, each under a temporary name first; the report names the files, and
    what could not be made.

    Raises FileNotFoundError if there are neither records nor a table, UnreadableRunError on a
    damaged file; with ``keeps_rows``, FewerRowsError if a row of today's table has no record.
    """
    contents = read_run_folder(run_folder)
    if contents.records and keeps_rows:
        trial_ids = {record.trial_id for record in contents.records}
        refuse_fewer_rows(run_folder, trial_ids, contents.trials.unreadable)
    dataset = build_dataset(contents.trials, contents.losses, run_folder)
    report = Report(dataset=dataset)
    outputs: dict[str, Callable[[], pa.Table | bytes | None]] = {
        **_tables(contents),
        layout.FRONTIER: lambda: frontier_table(dataset),
        layout.RESULT: lambda: tune_result.stored(dataset),
        layout.FRONTIER_PLOT: lambda: frontier.render(dataset) if can_draw() else None,
        layout.REPORT_MARKDOWN: lambda: markdown.render(report).encode(),
        layout.REPORT_HTML: lambda: page.render(report).encode(),
    }
    unwritten = []
    for name, make in outputs.items():
        try:
            _write(make(), run_folder / name)
        except Exception as error:
            unwritten.append(f"{name} could not be made: {type(error).__name__}: {error}")
    written = (run_folder / name for name in (*_PAGES, *_TABLES))
    files = tuple(path for path in written if path.exists())
    return dataclasses.replace(report, files=files, unwritten=tuple(unwritten))


_PAGES = (layout.REPORT_HTML, layout.REPORT_MARKDOWN, layout.FRONTIER_PLOT)
_TABLES = (layout.FRONTIER, layout.TRIALS, layout.STEPS, layout.ANATOMY, layout.RESULT)


def write_tables(run_folder: Path) -> None:
    """Write the tables of a folder's records, and no page."""
    for name, make in _tables(read_run_folder(run_folder)).items():
        _write(make(), run_folder / name)


def _tables(contents: RunContents) -> dict[str, Callable[[], pa.Table]]:
    if not contents.records:
        return {}
    return {
        layout.TRIALS: lambda: parquet.arrow_table(contents.trials),
        layout.STEPS: lambda: parquet.steps_table(contents.records),
        layout.ANATOMY: lambda: parquet.anatomy_table(contents.records),
    }


def _write(content: pa.Table | bytes | None, path: Path) -> None:
    if isinstance(content, bytes):
        with layout.written_beside(path) as partial:
            partial.write_bytes(content)
    elif content is not None:
        parquet.write(content, path)


def frontier_table(dataset: Dataset) -> Any:
    """The configurations on a front of equal recipe and effective batch, as an Arrow table. A row
    is that of the first repeat, with columns for all repeats together."""
    first_repeats = []
    values = []
    for results in dataset.environments:
        of_recipes, across = _members(results.fronts), _members(results.workload_fronts)
        for own in _members(fronts_by(results.sound, attrgetter("trains_like"))):
            first_repeats.append(dict(own.row))
            values.append(
                {
                    "frontier_memory_bytes": own.memory_bytes,
                    "frontier_samples_per_second": own.samples_per_second,
                    "repeats": len(own.trial_ids),
                    "on_frontier": own in of_recipes,
                    "across_recipes": own in across,
                }
            )
    table = parquet.arrow_table(dataclasses.replace(dataset.table, rows=first_repeats))
    return parquet.append_columns(table, FRONTIER_COLUMNS, values)


def _members(fronts: Mapping[Any, Iterable[Configuration]]) -> dict[Configuration, None]:
    return dict.fromkeys(own for front in fronts.values() for own in front)
