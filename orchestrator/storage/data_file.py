"""What a user's data file holds: its columns and the first of its rows, read without its content
ever reaching a message.
"""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLE_ROWS = 1000
"""Rows read of a file: enough to see what its labels are, read in milliseconds."""
_SAMPLE_BYTES = 4 * 2**20
"""Text read of a file, at most: a line of a text file has no bound of its own."""
_NOT_DATA = ("/proc", "/sys", "/dev")
"""Folders whose files are the kernel's: their content is no data, and may be a secret."""
_COLUMN_NAME = re.compile(r"[^\W\d][\w .:/()-]{0,63}")
"""What a column is called. A first line of anything else is content and never repeated."""
_SHOWN_COLUMNS = 12

Row = Mapping[str, Any]


class NoDataFileError(ValueError):
    """A file cannot be read as data of its format; one sentence without any of its content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """The beginning of a file or folder with data."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    """The first rows, column -> value; at most ``SAMPLE_ROWS``."""

    def listed_columns(self) -> str:
        """The columns as a message may show them: names only, and not too many."""
        names = [name for name in self.columns if _COLUMN_NAME.fullmatch(name)]
        shown = ", ".join(names[:_SHOWN_COLUMNS])
        left_out = len(self.columns) - len(names[:_SHOWN_COLUMNS])
        if not shown:
            return "no columns with names"
        if left_out:
            return f"{shown} and {left_out} more"
        return shown


def read_data_file(path: Path, file_format: str) -> DataFile:
    """The beginning of a file: columns and rows.

    Raises NoDataFileError: missing, of another kind, or not of its format.
    """
    _refuse_what_is_no_file(path, file_format)
    try:
        data = _READERS[file_format](path)
    except NoDataFileError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, csv.Error):
        # The error's own text may quote the file.
        raise NoDataFileError(f"{path} is not a {file_format} file, or is damaged") from None
    if not data.columns:
        raise NoDataFileError(f"{path} has no columns")
    if not data.rows:
        raise NoDataFileError(f"{path} has no rows")
    return data


def _refuse_what_is_no_file(path: Path, file_format: str) -> None:
    resolved = Path(os.path.realpath(path))
    if any(resolved.is_relative_to(folder) for folder in _NOT_DATA):
        raise NoDataFileError(f"{path} is no data file: it belongs to the system")
    try:
        mode = resolved.stat().st_mode
    except (OSError, ValueError):
        raise NoDataFileError(f"there is no file {path}") from None
    if file_format == "disk":
        if not stat.S_ISDIR(mode):
            raise NoDataFileError(f"{path} is not a folder that datasets.save_to_disk wrote")
    elif stat.S_ISDIR(mode):
        raise NoDataFileError(
            f"{path} is a folder; name one file in it, or give format: disk for a folder of "
            "datasets.save_to_disk"
        )
    elif not stat.S_ISREG(mode):
        raise NoDataFileError(f"{path} is no file but a pipe or a device")


def _json(path: Path) -> DataFile:
    """JSON lines, or one array of objects."""
    with open(path, encoding="utf-8") as file:
        text = file.read(_SAMPLE_BYTES)
    if text.lstrip().startswith("["):
        return _of_rows(_objects_of_array(text))
    lines = text.splitlines()
    if len(text) == _SAMPLE_BYTES:
        lines = lines[:-1] or lines  # the last one may be cut
    objects = [json.loads(line) for line in lines[:SAMPLE_ROWS] if line.strip()]
    return _of_rows(objects)


def _objects_of_array(text: str) -> Iterator[Any]:
    """The objects at the beginning of an array, whose end may be missing."""
    decoder = json.JSONDecoder()
    position = text.index("[") + 1
    for _ in range(SAMPLE_ROWS):
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        if position >= len(text) or text[position] == "]":
            return
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            if len(text) == _SAMPLE_BYTES:
                return  # the object goes on beyond what was read
            raise
        yield value


def _csv(path: Path) -> DataFile:
    with open(path, encoding="utf-8-sig", newline="") as file:
        lines = file.read(_SAMPLE_BYTES).splitlines(keepends=True)
    reader = csv.DictReader(lines)
    columns = tuple(reader.fieldnames or ())
    rows = []
    for row in reader:
        rows.append({name: _typed(row[name]) for name in columns})
        if len(rows) == SAMPLE_ROWS:
            break
    return DataFile(columns=columns, rows=tuple(rows))


def _typed(text: str | None) -> Any:
    """A cell as datasets would type it: integer, number, else text; an empty one is None."""
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parquet(path: Path) -> DataFile:
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        batches = file.iter_batches(batch_size=SAMPLE_ROWS)
        return _of_arrow(file.schema_arrow.names, next(batches, None))
    except pyarrow.ArrowException:
        raise NoDataFileError(f"{path} is not a parquet file, or is damaged") from None


def _arrow(path: Path) -> DataFile:
    import pyarrow

    # datasets writes streams; Arrow's own tools write files, too.
    for reader in (pyarrow.ipc.open_stream, pyarrow.ipc.open_file):
        try:
            with pyarrow.OSFile(os.fspath(path)) as source, reader(source) as opened:
                return _of_arrow(opened.schema.names, _first_batch(opened))
        except pyarrow.ArrowException:
            continue
    raise NoDataFileError(f"{path} is not an arrow file, or is damaged")


def _first_batch(opened: Any) -> Any:
    if hasattr(opened, "get_batch"):
        return opened.get_batch(0) if opened.num_record_batches else None
    return next(iter(opened), None)


def _disk(path: Path) -> DataFile:
    """A folder of ``datasets.save_to_disk``; of several splits, the training set."""
    folder = path
    if (path / "dataset_dict.json").exists():
        folder = path / "train"
        if not folder.is_dir():
            raise NoDataFileError(f"{path} holds several splits, and none is called train")
    state = folder / "state.json"
    if not state.exists():
        raise NoDataFileError(f"{path} is not a folder that datasets.save_to_disk wrote")
    files = json.loads(state.read_text(encoding="utf-8"))["_data_files"]
    return _arrow(folder / Path(files[0]["filename"]).name)


def _of_arrow(names: Sequence[str], batch: Any) -> DataFile:
    rows: list[Row] = []
    if batch is not None:
        rows = batch.slice(0, SAMPLE_ROWS).to_pylist()
    return DataFile(columns=tuple(names), rows=tuple(rows))


def _of_rows(objects: Iterator[Any] | list[Any]) -> DataFile:
    """Raises NoDataFileError if an object is none."""
    rows = list(objects)
    if not all(isinstance(row, dict) for row in rows):
        raise NoDataFileError("every line of a json file must be an object with columns as keys")
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    return DataFile(columns=tuple(columns), rows=tuple(rows))


_READERS: Mapping[str, Callable[[Path], DataFile]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "disk": _disk,
}
