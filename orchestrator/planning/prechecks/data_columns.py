"""Checks of the user's data before the first trial: its path, its columns and its labels."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.data_files import problem_of_path
from jobs.spec import DatasetFile, Task
from orchestrator.planning.prechecks.checkpoints import lacks_chat_template
from orchestrator.planning.prechecks.data_file import DataFile, NoDataFileError, read_data_file
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import KeyPath, guess_after

_TEXT_SOURCES = ("text", "messages", "prompt", "input_ids")
"""Columns that a trial can take token ids from. All but input_ids are tokenized first."""
_NEED_LABELS: tuple[Task, ...] = (
    "sequence-classification",
    "token-classification",
    "image-classification",
)


def data_problems(
    file: DatasetFile, task: Task, configuration: ModelConfiguration
) -> Iterator[tuple[KeyPath, str]]:
    """The problems of a data file: the path of the key below ``data.file``, and a sentence."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        yield ("path",), data
        return
    missing = list(missing_columns(file, data))
    yield from missing
    if not missing:
        yield from _column_problems(file, data, task)
        yield from _empty_inputs(file, data, task)
        yield from _label_problems(file, data, task, configuration.labels)
        yield from _token_id_problems(file, data, configuration.vocabulary)
        yield from _chat_problems(file, data)


def read_or_problem(file: DatasetFile) -> DataFile | str:
    """The columns and first rows of a file; a sentence if they cannot be read."""
    try:
        if glob.has_magic(file.path) and (problem := problem_of_path(file.path)):
            return problem
        return read_data_file(_first_path(file), file.format)
    except NoDataFileError as error:
        return _with_a_guess(str(error), Path(file.path))


def missing_columns(file: DatasetFile, data: DataFile) -> Iterator[tuple[KeyPath, str]]:
    """A problem for each column that the configuration names and the file lacks."""
    for ours, theirs in file.columns.items():
        if theirs in data.columns:
            continue
        message = f'the file has no column "{theirs}"; it has {data.listed_columns()}'
        yield ("columns", ours), message + guess_after(theirs, data.columns)


def _first_path(file: DatasetFile) -> Path:
    """The file, or the first that a pattern such as ``shards/*.parquet`` names."""
    if glob.has_magic(file.path):
        matches = sorted(glob.glob(file.path))
        if matches:
            return Path(matches[0])
    return Path(file.path)


def _with_a_guess(message: str, path: Path) -> str:
    """The message; if the file is missing, with the name that was probably meant."""
    if not message.startswith("there is no file"):
        return message
    if not path.parent.is_dir():
        return f"{message}: there is no folder {path.parent}"
    return message + guess_after(path.name, [other.name for other in path.parent.iterdir()])


def lacks_column(data: DataFile, name: str, who: str = "", hint: str = "") -> tuple[KeyPath, str]:
    """The problem of a file that has no column of this name of ours."""
    message = (
        f"{who}needs a column {name}; the file has {data.listed_columns()}; name yours in columns, "
        f"as in columns: {{{name}: YOURS}}{hint}"
    )
    return ("columns",), message


def _our_columns(file: DatasetFile, data: DataFile) -> set[str]:
    """The names of the columns that a trial sees: those of ``columns``, else the file's own."""
    return set(file.columns) or set(data.columns)


def _sources(file: DatasetFile, data: DataFile) -> list[str]:
    return [name for name in _TEXT_SOURCES if name in _our_columns(file, data)]


def _column_problems(
    file: DatasetFile, data: DataFile, task: Task
) -> Iterator[tuple[KeyPath, str]]:
    """Problems if the file has no column with inputs, or lacks the labels that the task needs."""
    ours = _our_columns(file, data)
    if task == "image-text-to-text":
        yield from _image_problems(file, data, ours)
    inputs, alternative = _inputs(file, task)
    if not ours.intersection(inputs):
        yield lacks_column(data, inputs[0], hint=alternative)
    if task in _NEED_LABELS and not ours.intersection(("labels", "label", "label_ids")):
        yield lacks_column(data, "labels", f"{task} ")


def _inputs(file: DatasetFile, task: Task) -> tuple[tuple[str, ...], str]:
    """The columns of which the task needs one, and what else helps if all are missing."""
    if task == "image-text-to-text":
        columns = ("text", "messages", "prompt")
        return columns, "; a column messages or prompt would do, too"
    if task == "image-classification":
        hint = "; images are not decoded, so save what the model's image processor returns"
        return ("pixel_values",), hint
    if file.tokenizer is None:
        return ("input_ids",), ", or give a tokenizer for a column text"
    return _TEXT_SOURCES, ""


def _image_problems(
    file: DatasetFile, data: DataFile, ours: set[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Problems if there is no column with images, or no processor to read them with."""
    if not ours.intersection(("images", "image")):
        yield lacks_column(data, "images")
    if file.tokenizer is None:
        yield (), "needs the folder of the model's processor in tokenizer"


def _empty_inputs(file: DatasetFile, data: DataFile, task: Task) -> Iterator[tuple[KeyPath, str]]:
    """A problem if one of the first rows has nothing in the column that is tokenized."""
    sources = _sources(file, data)
    # With several sources the trial decides which one it takes, and input_ids need no text.
    if task == "image-classification" or len(sources) != 1 or sources == ["input_ids"]:
        return
    [name] = sources
    for number, row in enumerate(data.rows, 1):
        if row.get(file.columns.get(name, name)) is None:
            yield _key(file, name), f"row {number} has no {name}; remove the rows without one"
            return


def _token_id_problems(
    file: DatasetFile, data: DataFile, vocabulary: int | None
) -> Iterator[tuple[KeyPath, str]]:
    """A problem if the first rows have token ids that the model does not have."""
    if vocabulary is None or "input_ids" not in _our_columns(file, data):
        return
    for row in data.rows:
        values = row.get(file.columns.get("input_ids", "input_ids"))
        wrong = _first_outside(values, vocabulary)
        if wrong is not None:
            yield (
                _key(file, "input_ids"),
                f"the first rows have the token id {wrong}, and the model has a vocabulary of "
                f"{vocabulary}; set model.config.vocab_size",
            )
            return


def _first_outside(values: Any, vocabulary: int) -> int | None:
    """The first token id of a row that is outside the vocabulary; None if there is none."""
    if not isinstance(values, list):
        return None
    for value in values:
        if isinstance(value, int) and not 0 <= value < vocabulary:
            return value
    return None


def _chat_problems(file: DatasetFile, data: DataFile) -> Iterator[tuple[KeyPath, str]]:
    """A problem if the rows are chats, and the tokenizer has no template for them."""
    are_chats = _sources(file, data) == ["messages"]
    if are_chats and file.tokenizer is not None and lacks_chat_template(file.tokenizer):
        yield (
            ("tokenizer",),
            "has no chat template, which rows of messages need; name the tokenizer of a chat "
            "model, or put a chat_template.jinja beside yours",
        )


def _key(file: DatasetFile, name: str) -> KeyPath:
    """The key that chose the file's column for ``name``: the column, or the path of the file."""
    return ("columns", name) if name in file.columns else ("path",)


def _label_problems(
    file: DatasetFile, data: DataFile, task: Task, num_labels: int | None
) -> Iterator[tuple[KeyPath, str]]:
    if task not in _NEED_LABELS:
        return
    name = next((ours for ours in ("labels", "label") if ours in _our_columns(file, data)), None)
    if name is None:
        return
    values = [row.get(file.columns.get(name, name)) for row in data.rows]
    problem = _label_problem(values, task, num_labels)
    if problem:
        yield _key(file, name), problem


def _label_problem(values: list[Any], task: Task, num_labels: int | None) -> str:
    """What is wrong with the labels of the first rows; empty if nothing is."""
    if any(value is None for value in values):
        return "some of the first rows have no label"
    if task != "token-classification":
        if any(isinstance(value, list) for value in values):
            return f"{task} needs one label a row, not a list"
        return _range_problem(values, num_labels)
    if not all(isinstance(value, list) for value in values):
        return f"{task} needs a list of labels a row, one for each token"
    labels: list[Any] = []
    for row in values:
        labels += row
    return _range_problem(labels, num_labels)


def _range_problem(values: list[Any], num_labels: int | None) -> str:
    """What is wrong with labels that are class numbers; empty if nothing is.

    Labels that are all texts are not checked here: the trial numbers them.
    """
    # Every loss of transformers leaves out the label -100.
    labels = [value for value in values if value != -100]
    are_texts = {isinstance(label, str) for label in labels}
    if len(are_texts) > 1:
        return "some of the first rows have texts as labels, and others numbers"
    if not labels or num_labels is None or not all(isinstance(label, int) for label in labels):
        return ""
    if min(labels) < 0:
        return f"labels must count from 0; the first rows have {min(labels)}"
    # A model with a single label is a regression, whose labels are any numbers.
    if num_labels > 1 and max(labels) >= num_labels:
        return (
            f"the first rows have labels up to {max(labels)}, and the model has {num_labels}; "
            f"set model.config.num_labels to {max(labels) + 1} or more"
        )
    return ""
