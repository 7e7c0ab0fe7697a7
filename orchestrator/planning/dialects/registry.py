"""The dialects, and which of them a file is written in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.planning.dialects import command_line
from orchestrator.planning.dialects.trainers import (
    accelerate,
    axolotl,
    llama_factory,
    ms_swift,
    training_arguments,
    trl,
)
from orchestrator.planning.dialects.translate import Dialect
from orchestrator.planning.document import MAX_BYTES, read_document
from orchestrator.planning.problems import ConfigError

DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="axolotl",
        rows=axolotl.ROWS,
        marks=axolotl.MARKS,
        defaults=axolotl.DEFAULTS,
        plugins=axolotl.PLUGIN_OF,
    ),
    Dialect(
        name="LLaMA-Factory v1",
        rows=llama_factory.V1_ROWS,
        marks=llama_factory.V1_MARKS,
        defaults=llama_factory.V1_DEFAULTS,
        takes_arguments=True,
    ),
    Dialect(
        name="LLaMA-Factory",
        rows=llama_factory.ROWS,
        marks=llama_factory.MARKS,
        defaults=llama_factory.DEFAULTS,
        takes_arguments=True,
        command=r"llamafactory-cli train|src/train\.py",
    ),
    Dialect(
        name="DeepSpeed",
        marks=("zero_optimization", "train_micro_batch_size_per_gpu"),
        whole="deepspeed",
    ),
    Dialect(name="accelerate", rows=accelerate.ROWS, marks=("compute_environment",)),
    Dialect(name="config.json", marks=("model_type",), whole="config"),
    Dialect(
        name="ms-swift",
        rows=ms_swift.ROWS,
        defaults=ms_swift.DEFAULTS,
        takes_arguments=True,
        command=r"(?<!megatron )\bswift (?P<command>\w+)|swift/cli/(?P<script>\w+)\.py",
    ),
    Dialect(
        name="TRL",
        rows=trl.ROWS,
        marks=trl.MARKS,
        defaults=trl.DEFAULTS,
        takes_arguments=True,
        command=r"\btrl (?P<command>\w+)|(?P<script>sft|dpo|grpo|kto|reward|ppo|rloo)\w*\.py",
    ),
    Dialect(
        name="TrainingArguments",
        rows=training_arguments.ROWS,
        marks=training_arguments.MARKS,
        takes_arguments=True,
        command=r"\.py$",
    ),
)
"""In the order in which a file's keys are compared with their marks."""


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
        names = ", ".join(dialect.name for dialect in DIALECTS)
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
    for dialect in DIALECTS:
        if any(mark in content for mark in dialect.marks):
            return dialect, content
    return None


def _of_command(text: str) -> tuple[Dialect, Mapping[str, Any]] | None:
    for words, options in command_line.commands(text):
        called = " ".join(words)
        for dialect in DIALECTS:
            found = dialect.command and re.search(dialect.command, called)
            is_whole = dialect.name != "TrainingArguments" or any(
                mark in options for mark in dialect.marks
            )
            if found and options and is_whole:
                named = next(filter(None, found.groups()), None)
                return dialect, {**({"command": named} if named else {}), **options}
    return None
