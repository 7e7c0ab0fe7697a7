"""Rows of runs that show another process on their GPU, by the check that trials make today.

Runs from before 2026-11-23 carry no such flag. Another process that took less memory than
libraries may take (``jobs.node.gpu_fitness``) is not found in them.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator

from jobs.flags import Flag
from jobs.node import gpu_fitness
from jobs.spec import LibrarySettings
from orchestrator.reporting.flags import describe
from orchestrator.storage.tables.rows import Row
from orchestrator.units import memory, number
from tests.benchmarks.recorded.runs import dataset_of


def lines(options: Namespace) -> Iterator[str]:
    for run in options.runs:
        dataset = dataset_of(run)
        flags = shared_rows(dataset.table.rows)
        yield f"{run}: {len(flags)} of {len(dataset.table.rows)} rows"
        for row in dataset.table.rows:
            if row["trial_id"] in flags:
                reason = describe(flags[row["trial_id"]])
                yield f"  {row['trial_id']} {dataset.row_label(row)}: {_figures(row)}; {reason}"


def shared_rows(rows: Iterable[Row]) -> dict[str, Flag]:
    """Trial -> what shows another process on its GPU."""
    found = {}
    for row in rows:
        # Optimizers with paged memory take memory outside the allocator by themselves.
        settings = LibrarySettings(training_arguments={"optim": row["optimizer"]})
        measured = {name: value for name, value in row.items() if value is not None}
        flags = gpu_fitness.sharing_flags(measured, settings)
        if flags:
            found[row["trial_id"]] = flags[0]
    return found


def _figures(row: Row) -> str:
    speed = row["samples_per_second"]
    outcome = f"{number(speed)} samples/s" if speed else row["outcome"]
    return f"{memory(row['device_peak_bytes'] or 0)}, {outcome}"
