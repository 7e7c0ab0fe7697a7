"""The dialects, and which of them a file is written in."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.planning.dialects import command_line
from orchestrator.planning.dialects.trainers.tables import Dialect, dialect
from orchestrator.planning.document import MAX_BYTES, read_document
from orchestrator.planning.problems import ConfigError

# In the order in which a file's keys are compared with their marks.
_TABLES = """
axolotl llama_factory_v1 llama_factory deepspeed accelerate config_json ms_swift trl
training_arguments
"""


@functools.cache
def dialects() -> tuple[Dialect, ...]:
    """All dialects."""
    return tuple(map(dialect, _TABLES.split()))


class UnreadableFileError(ValueError):
    """A file is in no known dialect; the text says why."""


def read_file(path: Path) -> tuple[Dialect, Mapping[str, Any]]:
    """The dialect of a file and its keys. Raises UnreadableFileError."""
    try:
        found = _of_keys(read_document(path).value)
    except ConfigError as error:
        if path.suffix in (".yaml", ".yml", ".json"):
            raise UnreadableFileError(str(error)) from None
        found = _of_command(_script(path))
    if found is None:
        names = ", ".join(known.name for known in dialects())
        raise UnreadableFileError(f"{path}: in none of the known dialects: {names}")
    return found


def _script(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            # A device has no end.
            return file.read(MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFileError(f"{path}: {error}") from None


def _of_keys(content: Mapping[str, Any]) -> tuple[Dialect, Mapping[str, Any]] | None:
    found = (known for known in dialects() if not content.keys().isdisjoint(known.marks))
    return next(((known, content) for known in found), None)


def _of_command(text: str) -> tuple[Dialect, Mapping[str, Any]] | None:
    for words, options in command_line.commands(text):
        called = " ".join(words)
        for known in dialects():
            found = known.command and re.search(known.command, called)
            is_whole = known.name != "TrainingArguments" or not options.keys().isdisjoint(
                known.marks
            )
            if found and options and is_whole:
                named = next(filter(None, found.groups()), None)
                return known, {**({"command": named} if named else {}), **options}
    return None
