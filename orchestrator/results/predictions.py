"""Predictions as a table: one row a trial, what predicted them in the file's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.results.table import read, tool_version, write

_LIBRARIES = ("torch", "transformers", "accelerate", "peft", "bitsandbytes", "deepspeed")


def write_predictions(rows: Sequence[Mapping[str, Any]], path: Path, *, gpu: str) -> Path:
    """Write rows of ``trial_id``, figures in bytes, anatomy and verdicts as Parquet."""
    table = pa.Table.from_pylist([dict(row) for row in rows])
    versions = {name: version(name) for name in _LIBRARIES}
    metadata = {"gpu": gpu, "tool_version": tool_version(), **versions}
    return write(table.replace_schema_metadata(metadata), path)


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """The rows that ``write_predictions`` wrote. Raises FileNotFoundError or pyarrow.ArrowInvalid."""
    rows: list[dict[str, Any]] = read(path).to_pylist()
    return rows
