"""Rows in a file of JSON lines, as a user's data."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.spec import DatasetFile


def file_of(rows: Sequence[Mapping[str, Any]], folder: Path, **fields: Any) -> DatasetFile:
    """The file in a folder; ``fields`` are further ones of ``DatasetFile``."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DatasetFile(**{"path": str(path), "format": "json", **fields})
