"""Publish a run: from its records to every table and page in its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from orchestrator.analysis.configuration import Configuration
from orchestrator.analysis.dataset import Dataset, build_dataset
from orchestrator.analysis.pareto import fronts_by
from orchestrator.reporting import markdown, tune_result
from orchestrator.reporting.html import page
from orchestrator.reporting.plots import frontier
from orchestrator.reporting.report import Report
from orchestrator.storage import layout
from orchestrator.storage.kept_rows import refuse_fewer_rows
from orchestrator.storage.run_reader import read_run_folder
from orchestrator.storage.tables import parquet
from orchestrator.storage.tables.columns import FRONTIER_COLUMNS

_WRITTEN = (
    layout.REPORT_HTML,
    layout.REPORT_MARKDOWN,
    layout.FRONTIER_PLOT,
    layout.FRONTIER,
    layout.TRIALS,
    layout.STEPS,
    layout.ANATOMY,
    layout.RESULT,
)


def publish(run_folder: Path, *, keeps_rows: bool = False) -> Report:
    """Write tables and pages, each under a temporary name first; the report names the files.

    Raises FileNotFoundError if the folder holds neither records nor a table, UnreadableRunError
    on a damaged file. With ``keeps_rows``, FewerRowsError if the present table has rows that have
    no record.
    """
    # Tables first: if a page cannot be drawn, the figures are already written.
    dataset = write_tables(run_folder, keeps_rows=keeps_rows)
    report = Report(dataset=dataset)
    parquet.write(frontier_table(dataset), run_folder / layout.FRONTIER)
    tune_result.write(dataset, run_folder)
    _write(frontier.render(dataset), run_folder / layout.FRONTIER_PLOT)
    text = markdown.render(report, picture=layout.FRONTIER_PLOT)
    _write(text.encode(), run_folder / layout.REPORT_MARKDOWN)
    _write(page.render(report).encode(), run_folder / layout.REPORT_HTML)
    files = tuple(run_folder / name for name in _WRITTEN if (run_folder / name).exists())
    return dataclasses.replace(report, files=files)


def write_tables(run_folder: Path, *, keeps_rows: bool = False) -> Dataset:
    """The folder's data set; its tables are written if it has records.

    Raises FewerRowsError as ``publish`` does.
    """
    contents = read_run_folder(run_folder)
    table = contents.trials
    records = contents.records
    if records and keeps_rows:
        trial_ids = {record.trial_id for record in records}
        refuse_fewer_rows(run_folder, trial_ids, table.unreadable)
    dataset = build_dataset(table, contents.losses, run_folder)
    if records:
        parquet.write(parquet.arrow_table(table), run_folder / layout.TRIALS)
        parquet.write(parquet.steps_table(records), run_folder / layout.STEPS)
        parquet.write(parquet.anatomy_table(records), run_folder / layout.ANATOMY)
    return dataset


def frontier_table(dataset: Dataset) -> Any:
    """The configurations on a front of equal recipe and effective batch, as an Arrow table.

    A row is that of the first repeat, with columns for all repeats together.
    """
    on_fronts = list(_on_fronts(dataset))
    first_repeats = [dict(configuration.row) for configuration, _ in on_fronts]
    table = parquet.arrow_table(dataclasses.replace(dataset.table, rows=first_repeats))
    return parquet.append_columns(table, FRONTIER_COLUMNS, [values for _, values in on_fronts])


def _on_fronts(dataset: Dataset) -> Iterator[tuple[Configuration, dict[str, Any]]]:
    """Each configuration with its values of ``FRONTIER_COLUMNS``."""
    for results in dataset.environments:
        # On a front of its recipe, and on that of all recipes together.
        of_recipes = _trial_ids(results.fronts.values())
        across = _trial_ids(results.workload_fronts.values())
        for front in fronts_by(results.sound, attrgetter("trains_like")).values():
            for configuration in front:
                values = {
                    "frontier_memory_bytes": configuration.memory_bytes,
                    "frontier_samples_per_second": configuration.samples_per_second,
                    "repeats": len(configuration.trial_ids),
                    "on_frontier": configuration.trial_ids in of_recipes,
                    "across_recipes": configuration.trial_ids in across,
                }
                yield configuration, values


def _trial_ids(fronts: Iterable[Iterable[Configuration]]) -> set[tuple[str, ...]]:
    return {configuration.trial_ids for front in fronts for configuration in front}


def _write(content: bytes, path: Path) -> None:
    with layout.written_beside(path) as partial:
        partial.write_bytes(content)
