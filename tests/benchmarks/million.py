"""A table of a million invented rows: ten GPU models, a hundred thousand configurations each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from orchestrator.storage import run_metadata
from orchestrator.storage.tables import parquet
from tests.support.records import make_grid

MODELS = 10
NOISE = {"samples_per_second": 0.05, "device_peak_bytes": 0.02}
"""Column -> relative standard deviation about the invented grid's figures, so that no two rows tie."""


def write_table(folder: Path, rows: int) -> None:
    """``trials.parquet`` of so many different configurations, in ``folder``."""
    grid = parquet.trials_table(make_grid(), run=run_metadata.Run(name="a million rows"))
    number = np.arange(rows)
    block = number // grid.num_rows
    repeated = grid.take(pa.array(number % grid.num_rows))
    chance = np.random.default_rng(0)
    columns = {
        "trial_id": pa.array([f"{place:012x}" for place in number]),
        "environment_id": pa.array([f"model{model:03d}" for model in block % MODELS]),
    }
    for name, share in NOISE.items():
        figures = repeated[name].to_numpy(zero_copy_only=False) * chance.normal(1, share, rows)
        columns[name] = pa.array(figures, from_pandas=True).cast(
            grid.schema.field(name).type, safe=False
        )
    for name, values in columns.items():
        place = repeated.column_names.index(name)
        repeated = repeated.set_column(place, repeated.schema.field(place), values)
    axis = pa.field("weight_decay", pa.float64(), metadata={"axis": "weight_decay"})
    repeated = repeated.append_column(axis, pa.array(block // MODELS / 1000))
    environments = {
        f"model{model:03d}": {"gpu_model": f"Invented {model}"} for model in range(MODELS)
    }
    metadata = {**grid.schema.metadata, b"environments": json.dumps(environments).encode()}
    parquet.write(repeated.replace_schema_metadata(metadata), folder / run_metadata.TRIALS)
