"""Reads the columns and first rows of a user's data file, whose values no message ever contains."""

import csv
import io
import itertools
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.data_files import problem_of_file, problem_of_path
from jobs.data_lines import NOT_READ, first_fault, unpacked

SAMPLE_ROWS = 1000
"""Rows to read of a file, at most: enough to see its labels, and read in milliseconds."""
SCANNED_BYTES = 2**26
"""Bytes of a text file in which to look for bad lines: read in about two seconds."""
_SAMPLE_BYTES = 4 * 2**20
"""Characters to read of a text file, at most, because a single line can be of any length."""
_COLUMN_NAME = re.compile(r"[^\W\d][\w .:/()-]{0,63}")
"""What looks like the name of a column. Anything else in the first line is never shown."""

_FOLDERS = {
    "disk": "not a folder that datasets.save_to_disk wrote",
    "imagefolder": "not a folder of images",
}
"""Format whose data is a folder -> what another path is."""
_A_FOLDER = (
    "a folder; name one file in it, or several by a pattern such as shards/*.parquet, or give "
    "format: disk for a folder of datasets.save_to_disk"
)

Row = Mapping[str, Any]


class NoDataFileError(ValueError):
    """A file cannot be read as data of its format. The message has none of the file's content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFile:
    """The columns and the first rows of a file or folder with data."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    """The first rows, column -> value; at most ``SAMPLE_ROWS``."""

    def listed_columns(self) -> str:
        """The columns for a message: only what looks like a name, and at most twelve."""
        if len(self.columns) == 1 and set(";\t") & set(self.columns[0]):
            return "one column, because its cells are not separated by commas"
        names = [name for name in self.columns if _COLUMN_NAME.fullmatch(name)][:12]
        if not names:
            return "no columns with names"
        left_out = len(self.columns) - len(names)
        return ", ".join(names) + (f" and {left_out} more" if left_out else "")

    def values(self, columns: Mapping[str, str]) -> dict[str, list[Any]]:
        """Column -> its values in the first rows. Those that the user names have the name that a
        trial has for them (``columns``, ours -> theirs). If the user names none, all columns have
        their own names."""
        names = columns or {name: name for name in self.columns}
        return {ours: [row.get(theirs) for row in self.rows] for ours, theirs in names.items()}


def read_data_file(path: Path, file_format: str) -> DataFile:
    """The columns and first rows of a file. Raises NoDataFileError, also if it is not of the
    format."""
    _refuse_what_is_no_file(path, file_format)
    try:
        data = _READERS[file_format](path)
    except NoDataFileError as error:
        raise NoDataFileError(_fault(path, file_format) or str(error)) from None
    except (*NOT_READ, ValueError, KeyError, TypeError, RecursionError, csv.Error):
        # Leave out the error's own text, which may quote the file.
        damaged = f"{path} is not a {file_format} file, or is damaged"
        raise NoDataFileError(_fault(path, file_format) or damaged) from None
    if not path.is_dir() and path.stat().st_size == 0:
        raise NoDataFileError(f"{path} is empty; each of its lines or rows is to be a sample")
    if not data.columns:
        raise NoDataFileError(f"{path} has no columns")
    if not data.rows:
        raise NoDataFileError(f"{path} has no rows")
    return data


def _fault(path: Path, file_format: str) -> str:
    return first_fault(str(path), file_format, {}, SCANNED_BYTES)


def _refuse_what_is_no_file(path: Path, file_format: str) -> None:
    problem = problem_of_file(path)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        raise NoDataFileError(problem or f"there is no file {path}") from None
    if is_folder != (file_format in _FOLDERS):
        problem = problem or f"{path} is {_FOLDERS.get(file_format, _A_FOLDER)}"
    if problem := problem or problem_of_path(os.fspath(path)):
        raise NoDataFileError(problem)


def _json(path: Path) -> DataFile:
    with io.TextIOWrapper(unpacked(path), encoding="utf-8-sig") as file:
        text = file.read(_SAMPLE_BYTES)
    if text.lstrip().startswith("["):
        return _of_rows(_objects_of_array(text))
    lines = text.splitlines()
    if len(text) == _SAMPLE_BYTES:
        lines = lines[:-1] or lines  # drop the last line, which may be incomplete
    objects = [json.loads(line) for line in lines[:SAMPLE_ROWS] if line.strip()]
    return _of_rows(objects)


def _objects_of_array(text: str) -> Iterator[Any]:
    """The first objects of a JSON array. The text may end before the array does."""
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
                return  # the object is longer than the text that was read
            raise
        yield value


def _csv(path: Path) -> DataFile:
    with io.TextIOWrapper(unpacked(path), encoding="utf-8-sig", newline="") as file:
        lines = file.read(_SAMPLE_BYTES).splitlines(keepends=True)
    reader = csv.DictReader(lines)
    columns = tuple(reader.fieldnames or ())
    first = itertools.islice(reader, SAMPLE_ROWS)
    rows = tuple({name: _typed(row[name]) for name in columns} for row in first)
    return DataFile(columns=columns, rows=rows)


def _typed(text: str | None) -> Any:
    """The value of a CSV cell, of the type that datasets would give it; None for an empty cell."""
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
                if reader is pyarrow.ipc.open_stream:
                    batch = next(iter(opened), None)
                else:
                    batch = opened.get_batch(0) if opened.num_record_batches else None
                return _of_arrow(opened.schema.names, batch)
        except pyarrow.ArrowException:
            continue
    raise NoDataFileError(f"{path} is not an arrow file, or is damaged")


def _disk(path: Path) -> DataFile:
    """A folder of ``datasets.save_to_disk``. Of several splits, the one called train."""
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


def _image_folder(path: Path) -> DataFile:
    """The metadata beside a folder's images, in which ``file_name`` is an image; without such a
    file an image of each class, whose folder has its name."""
    for name, reader in (("metadata.jsonl", _json), ("metadata.csv", _csv)):
        if (path / name).is_file():
            data = reader(path / name)
            # datasets gives the file that ``file_name`` names as the column ``image``.
            rows = tuple({"image": row.get("file_name"), **row} for row in data.rows)
            columns = [column for column in data.columns if column != "file_name"]
            return DataFile(columns=("image", *columns), rows=rows)
    root = path / "train" if (path / "train").is_dir() else path
    classes = sorted(own.name for own in root.iterdir() if own.is_dir())
    if len(classes) < 2:
        what = "no folder for each class, and no metadata.jsonl or metadata.csv"
        raise NoDataFileError(f"{path} has {what}")
    return _of_rows({"image": name, "label": name} for name in classes)


def _of_arrow(names: Sequence[str], batch: Any) -> DataFile:
    rows = [] if batch is None else batch.slice(0, SAMPLE_ROWS).to_pylist()
    return DataFile(columns=tuple(names), rows=tuple(rows))


def _of_rows(objects: Iterable[Any]) -> DataFile:
    rows = tuple(objects)
    if not all(isinstance(row, dict) for row in rows):
        raise NoDataFileError("every line of a json file must be an object with columns as keys")
    columns = dict.fromkeys(itertools.chain.from_iterable(rows))
    return DataFile(columns=tuple(columns), rows=rows)


_READERS: Mapping[str, Callable[[Path], DataFile]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "disk": _disk,
    "imagefolder": _image_folder,
}
