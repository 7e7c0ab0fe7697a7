"""Publish a run: from its records to every table and page in its folder."""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from pathlib import Path
from typing import Any

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

_PAGES = (layout.REPORT_HTML, layout.REPORT_MARKDOWN, layout.FRONTIER_PLOT)
_TABLES = (layout.FRONTIER, layout.TRIALS, layout.STEPS, layout.ANATOMY, layout.RESULT)


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
    pages = {
        layout.FRONTIER_PLOT: frontier.render(dataset),
        layout.REPORT_MARKDOWN: markdown.render(report, picture=layout.FRONTIER_PLOT).encode(),
        layout.REPORT_HTML: page.render(report).encode(),
    }
    for name, content in pages.items():
        with layout.written_beside(run_folder / name) as partial:
            partial.write_bytes(content)
    written = [run_folder / name for name in (*_PAGES, *_TABLES)]
    return dataclasses.replace(report, files=tuple(path for path in written if path.exists()))


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
    first_repeats = []
    values = []
    for results in dataset.environments:
        # On a front of its recipe, and on that of all recipes together.
        of_recipes, across = (
            {own.trial_ids for front in fronts.values() for own in front}
            for fronts in (results.fronts, results.workload_fronts)
        )
        for front in fronts_by(results.sound, attrgetter("trains_like")).values():
            for own in front:
                first_repeats.append(dict(own.row))
                values.append(
                    {
                        "frontier_memory_bytes": own.memory_bytes,
                        "frontier_samples_per_second": own.samples_per_second,
                        "repeats": len(own.trial_ids),
                        "on_frontier": own.trial_ids in of_recipes,
                        "across_recipes": own.trial_ids in across,
                    }
                )
    table = parquet.arrow_table(dataclasses.replace(dataset.table, rows=first_repeats))
    return parquet.append_columns(table, FRONTIER_COLUMNS, values)
