"""Names the first line of a data file that cannot be trained on, without quoting its content."""

import contextlib
import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jobs.spec import DatasetFile

_NEEDED = ("text", "target", "prompt", "completion", "messages", "chosen", "rejected", "input_ids")
_LABELS = ("labels", "label", "label_ids")
"""Columns whose value every row must have, of the same kind, if the first row has it."""
CHATS = ("messages", "prompt", "completion", "chosen", "rejected")
"""Columns that may hold chats."""
_READ_FIRST = ("input_ids", "text")
"""Columns that a trial reads rather than chats."""
_KINDS = {str: "text", bool: "truth value", int: "number", float: "number", list: "list"}

Row = Mapping[str, Any]


@contextlib.contextmanager
def naming_the_line(file: DatasetFile) -> Iterator[None]:
    """Turn an error of reading a file into a ValueError that names the line that is the cause."""
    try:
        yield
    except Exception as error:
        if fault := first_fault(file.path, file.format, file.columns):
            raise ValueError(fault) from error
        if isinstance(error.__cause__, Exception):
            # datasets says only that it failed; the reason is the error behind it.
            raise ValueError(f"{file.path} cannot be read: {error.__cause__}") from error
        raise


def first_fault(
    path: str, file_format: str, columns: Mapping[str, str], most_bytes: int | None = None
) -> str:
    """``data.jsonl, line 70,001: ends within an object``; empty if no line is known to be bad.
    ``columns`` are those that the user names, ours -> theirs. Reads lines of JSON or CSV, from the
    first ``most_bytes`` bytes only if they are given."""
    read = {"json": _of_json, "csv": _of_csv}.get(file_format)
    if read is None:
        return ""
    names = columns or {name: name for name in (*_NEEDED, *_LABELS)}
    needed = [theirs for ours, theirs in names.items() if ours in (*_NEEDED, *_LABELS)]
    chats = [theirs for ours, theirs in names.items() if ours in CHATS]
    first = {theirs for ours, theirs in names.items() if ours in _READ_FIRST}
    kinds: dict[str, str] = {}
    try:
        with unpacked(path) as lines:
            for number, row in read(_first(lines, most_bytes)):
                _check(number, row, needed, kinds)
                _check_chats(number, row, () if first & row.keys() else chats)
    except _BadLineError as error:
        return f"{path}, line {error.line:,}: {error}"
    except NOT_READ:
        return ""
    return ""


NOT_READ = (OSError, EOFError, zlib.error)
"""What reading an ``unpacked`` file may raise."""


def unpacked(path: str | os.PathLike[str]) -> gzip.GzipFile | io.BufferedReader:
    """A file that is open for reading, unpacked if it is packed by gzip, as datasets does it."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_packed else open(path, "rb")


def chat_fault(chat: object) -> str:
    """What is wrong with a list of messages; empty if nothing is, or if it is no list."""
    if not isinstance(chat, list):
        return ""
    if not chat:
        return "has no messages"
    for number, message in enumerate(chat, 1):
        if not isinstance(message, Mapping):
            return f"has a message {number} that is {_kind(message)}, not a mapping"
        if "role" not in message:
            form = " (from and value are ShareGPT's form)" if "from" in message else ""
            return f"has a message {number} without role; messages need role and content{form}"
        # A template writes a message without content as an empty one.
        content = message.get("content")
        if content is None and message.get("tool_calls") is None:
            return f"has a message {number} with neither content nor tool_calls"
        if not isinstance(content, str | list | None):
            return f"has a message {number} whose content is {_kind(content)}, not a text"
    return ""


class _BadLineError(Exception):
    """What is wrong with a line, which ``line`` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def _first(lines: Iterable[bytes], most_bytes: int | None) -> Iterator[tuple[int, str]]:
    """The number and the text of each line. Raises _BadLineError for one that is not UTF-8."""
    left = most_bytes
    for number, line in enumerate(lines, 1):
        if left is not None:
            left -= len(line)
            if left < 0:
                return
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise _BadLineError(f"byte {error.start + 1} is no UTF-8", number) from None


def _of_json(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    for number, line in lines:
        if number == 1 and line.lstrip().startswith("["):
            return  # one array, which may have any number of lines
        if not line.strip():
            continue
        try:
            row = json.loads(line.rstrip())
        except json.JSONDecodeError as error:
            raise _BadLineError(
                f"no JSON: {error.msg}, at character {error.colno}", number
            ) from None
        except RecursionError:
            raise _BadLineError("its values are nested too deeply", number) from None
        if not isinstance(row, dict):
            raise _BadLineError(f"{_kind(row)} instead of an object with columns as keys", number)
        yield number, row


def _of_csv(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(line for _, line in lines)
    try:
        header = next(reader, [])
        for cells in reader:
            if len(cells) > len(header):
                reason = f"{len(cells)} cells, and the header has {len(header)}"
                raise _BadLineError(reason, reader.line_num)
            # An empty cell is no value; what kind another one is, its whole column decides.
            values = [cell or None for cell in cells]
            yield reader.line_num, dict(zip(header, values, strict=False))
    except csv.Error as error:
        raise _BadLineError(str(error), reader.line_num) from None


def _check(number: int, row: Row, needed: list[str], kinds: dict[str, str]) -> None:
    for name in needed:
        kind = _kind(row.get(name))
        first = kinds.setdefault(name, kind)
        # A column that the first row lacks is not what the trial reads.
        if kind != first != _kind(None):
            reason = f'{kind} in the column "{name}", which holds {first} before'
            raise _BadLineError(reason, number)


def _check_chats(number: int, row: Row, chats: Sequence[str]) -> None:
    for name in chats:
        if fault := chat_fault(row.get(name)):
            raise _BadLineError(f'the column "{name}" {fault}', number)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {_KINDS.get(type(value), 'mapping')}"
