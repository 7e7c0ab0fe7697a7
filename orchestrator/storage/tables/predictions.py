"""Predictions as a table, one row per trial. The metadata names the GPU and the versions."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.distribution import tool_version
from orchestrator.storage.tables.arrow import metadata_of
from orchestrator.storage.tables.parquet import write

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "deepspeed")


def write_predictions(rows: Sequence[Mapping[str, Any]], path: Path, *, gpu: str) -> Path:
    """Write rows of ``reporting.prediction.row`` as Parquet, with the versions that made them."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    versions = {name: version(name) for name in _LIBRARIES}
    metadata = {"gpu": gpu, "tool_version": tool_version(), **versions}
    return write(table.replace_schema_metadata(metadata), path)


def read_predictions(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows that ``write_predictions`` wrote; the GPU and the versions that made them, by name.
    Raises FileNotFoundError or pyarrow.ArrowInvalid."""
    table = pq.read_table(path)
    return table.to_pylist(), metadata_of(table)
