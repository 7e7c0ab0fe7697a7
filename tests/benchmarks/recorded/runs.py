"""Rows of recorded runs, as the subcommands of ``tests.benchmarks.tables`` read them."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq

from jobs.record import Outcome
from orchestrator.analysis.dataset import Dataset, load_dataset
from orchestrator.labels import label
from orchestrator.storage.layout import TRIALS
from orchestrator.storage.tables.parquet import metadata_of
from orchestrator.storage.tables.rows import Row

dataset_of = cache(load_dataset)
"""A run from its folder; the tests print the figures of many subcommands in one process."""


def folders_below(runs: Iterable[Path]) -> list[Path]:
    """The run folders below some folders, or these themselves."""
    return sorted({path.parent for run in runs for path in run.rglob(TRIALS)})


def ok_rows(dataset: Dataset) -> list[Row]:
    """The trials of the search that ended ok."""
    return [row for row in dataset.rows if row["outcome"] == Outcome.OK]


def full_label(dataset: Dataset, row: Row) -> str:
    """A row's configuration with every axis, so that labels of several runs can be compared."""
    choices = {axis: row.get(column) for axis, column in dataset.axes.items()}
    return label(choices, list(dataset.axes))


def read_predictions(path: Path) -> tuple[list[Row], dict[str, str]]:
    """The rows of a file of predictions; the GPU and the versions that made them, by name."""
    table = pq.read_table(path)
    return table.to_pylist(), metadata_of(table)
