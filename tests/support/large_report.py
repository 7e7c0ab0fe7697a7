"""A report of many invented configurations."""

from typing import Any

from orchestrator.analysis.dataset import build_dataset
from orchestrator.reporting.report import Report
from orchestrator.storage.run_metadata import RunMetadata
from orchestrator.storage.tables.columns import trial_table_columns
from orchestrator.storage.tables.trial_table import TrialTable
from orchestrator.units import GIB, MIB


def report_of(rows: int) -> Report:
    """Configurations on two axes, no two equal in memory or speed."""
    table = TrialTable(
        rows=[_invented_row(number) for number in range(rows)],
        columns=trial_table_columns(),
        axes={"micro_batch": "micro_batch", "seed": "seed"},
        run=RunMetadata(name="many"),
        environments={},
    )
    return Report(dataset=build_dataset(table, {}))


def _invented_row(number: int) -> dict[str, Any]:
    # Multiples of a prime, modulo another one, are all different.
    return {
        "trial_id": f"{number:012x}",
        "outcome": "ok",
        "environment_id": "one",
        "training_recipe": "{}",
        "micro_batch": 1 + number % 100,
        "accumulation": 1,
        "effective_batch": 1 + number % 100,
        "seed": number // 100,
        "peak_allocated_bytes": GIB + 7919 * number % 10_007 * MIB,
        "samples_per_second": 10.0 + 104_729 * number % 10_009,
        "slot_seconds": 1.0,
    }
