"""Checks of the user's data before the first trial: its path, its columns and its labels."""

import glob
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.data_files import problem_of_path
from jobs.data_lines import chat_fault, first_fault
from jobs.spec import DatasetFile, Task
from jobs.tasks import SPEECH
from orchestrator.planning.prechecks.checkpoints import lacks_chat_template
from orchestrator.planning.prechecks.data_file import (
    SCANNED_BYTES,
    DataFile,
    NoDataFileError,
    read_data_file,
)
from orchestrator.planning.prechecks.model_configuration import ModelConfiguration
from orchestrator.planning.problems import KeyProblem, KeyProblems, Remark, guess_after

_TEXT_SOURCES = ("text", "messages", "prompt", "input_ids")
"""Columns that a trial can take token ids from. All but input_ids are tokenized first."""
_NEED_LABELS: tuple[Task, ...] = (
    "sequence-classification",
    "token-classification",
    "image-classification",
)
Columns = Mapping[str, Sequence[Any]]
"""Our name of a column -> its values in the first rows."""


def data_problems(file: DatasetFile, task: Task, configuration: ModelConfiguration) -> KeyProblems:
    """The problems of a data file, with paths below ``data.file``."""
    data = read_or_problem(file)
    if not isinstance(data, DataFile):
        yield ("path",), data
        return
    missing = list(missing_columns(file, data))
    yield from missing
    if not missing:
        columns = _without_unread(data.values(file.columns), task)
        yield from _column_problems(file, data, columns, task)
        wrong = list(_value_problems(columns, task, configuration))
        for name, problem in wrong:
            yield (("columns", name) if name in file.columns else ("path",)), problem
        names = {ours: file.columns.get(ours, ours) for ours in columns}
        fault = first_fault(file.path, file.format, names, SCANNED_BYTES)
        if not wrong and (fault := fault or _chat_fault(file, columns)):
            yield ("path",), fault
        is_chat = _sources(columns) == ["messages"]
        if is_chat and file.tokenizer is not None and lacks_chat_template(file.tokenizer):
            yield (
                ("tokenizer",),
                "has no chat template, which rows of messages need; name the tokenizer of a chat "
                "model, or put a chat_template.jinja beside yours",
            )


def read_or_problem(file: DatasetFile) -> DataFile | str:
    """The columns and first rows of a file; a sentence if they cannot be read."""
    path = Path(file.path)
    try:
        if glob.has_magic(file.path):
            if problem := problem_of_path(file.path):
                return problem
            # The first file that a pattern such as ``shards/*.parquet`` names.
            path = Path(min(glob.glob(file.path), default=file.path))
        return read_data_file(path, file.format)
    except NoDataFileError as error:
        return _with_a_guess(str(error), Path(file.path))


def missing_columns(file: DatasetFile, data: DataFile) -> KeyProblems:
    """A problem for each column that the configuration names and the file lacks."""
    for ours, theirs in file.columns.items():
        if theirs not in data.columns:
            message = f'the file has no column "{theirs}"; it has {data.listed_columns()}'
            yield ("columns", ours), message + guess_after(theirs, data.columns)


def left_out_tools(file: DatasetFile) -> Iterator[Remark]:
    """A note if the columns that the user names are chats without the tools that they call."""
    data = read_or_problem(file) if {"messages", "prompt"} & file.columns.keys() else ""
    if isinstance(data, DataFile) and "tools" in {*data.columns} - {*file.columns.values()}:
        message = "leaves out the file's column tools; add tools: tools if the chats call them"
        yield Remark(("data", "file", "columns"), message, is_note=True)


def _with_a_guess(message: str, path: Path) -> str:
    """The message; if the file is missing, with the name that was probably meant."""
    if not message.startswith("there is no file"):
        return message
    if not path.parent.is_dir():
        return f"{message}: there is no folder {path.parent}"
    return message + guess_after(path.name, os.listdir(path.parent))


def lacks_column(data: DataFile, name: str, who: str = "", hint: str = "") -> KeyProblem:
    """The problem of a file that has no column of this name of ours."""
    if {"instruction", "output"} <= {*data.columns}:
        hint = ", or columns: {prompt: instruction, completion: output}"
        if "input" in data.columns:
            hint += ", which leaves input out; to train on it, write it into the instruction"
    if {"chosen", "rejected"} <= {*data.columns} and not who:
        hint = ", or train on pairs of answers, with loop: trl_dpo in axes"
    for own, values in data.values({}).items():
        if isinstance(values[0], list) and any(isinstance(item, dict) for item in values[0]):
            fault = chat_fault(values[0])
            hint = f'; "{own}" {fault}' if fault else f", or columns: {{messages: {own}}}"
    message = (
        f"{who}needs a column {name}; the file has {data.listed_columns()}; name yours in columns, "
        f"as in columns: {{{name}: YOURS}}{hint}"
    )
    return ("columns",), message


def _without_unread(columns: Columns, task: Task) -> Columns:
    """The columns without texts beside a chat, which such a task reads in their place."""
    if task not in ("causal-lm", "image-text-to-text") or "messages" not in columns:
        return columns
    return {name: columns[name] for name in columns if name not in ("text", "prompt", "completion")}


def _sources(columns: Columns) -> list[str]:
    return [name for name in _TEXT_SOURCES if name in columns]


def _column_problems(
    file: DatasetFile, data: DataFile, columns: Columns, task: Task
) -> KeyProblems:
    if task == "image-text-to-text":
        if not {"images", "image"} & columns.keys():
            yield lacks_column(data, "images")
        if file.tokenizer is None:
            yield (), "needs the folder of the model's processor in tokenizer"
    inputs, alternative = _inputs(file, task)
    if not columns.keys() & inputs:
        if inputs == ("input_ids",) and (texts := _sources(columns)):
            yield (), f"needs a tokenizer for the column {texts[0]}; name the model's in tokenizer"
        else:
            yield lacks_column(data, inputs[0], hint=alternative)
    elif _sources(columns) == ["prompt"] and "completion" not in columns:
        yield lacks_column(data, "completion")
    elif task == "seq2seq-lm" and _sources(columns) == ["text"] and "target" not in columns:
        yield lacks_column(data, "target", f"{task} ")
    if task in (*_NEED_LABELS, *SPEECH) and not {"labels", "label", "label_ids"} & columns.keys():
        yield lacks_column(data, "labels", f"{task} ")


def _inputs(file: DatasetFile, task: Task) -> tuple[tuple[str, ...], str]:
    """The columns of which the task needs one, and what else helps if all are missing."""
    if task == "image-text-to-text":
        return ("text", "messages", "prompt"), "; a column messages or prompt would do, too"
    if task == "image-classification":
        return ("images", "image", "pixel_values"), ""
    if task in SPEECH:
        return ("input_features", "input_values"), ", as the model's feature extractor makes it"
    if file.tokenizer is None:
        return ("input_ids",), ", or give a tokenizer for a column text"
    return _TEXT_SOURCES, ""


def _value_problems(
    columns: Columns, task: Task, configuration: ModelConfiguration
) -> Iterator[tuple[str, str]]:
    """Our name of each column whose first rows no trial can use, and why."""
    sources = _sources(columns)
    if task == "image-classification":
        sources = [name for name in ("images", "image") if name in columns]
    # With several sources the trial decides which one it takes, and input_ids need no text.
    if len(sources) == 1 and sources != ["input_ids"]:
        [name] = sources
        if None in columns[name]:
            number = columns[name].index(None) + 1
            yield name, f"row {number} has no {name}; remove the rows without one"
        kinds = [isinstance(value, int | float) for value in columns[name]]
        if name == "text" and True in kinds:
            yield name, f"row {kinds.index(True) + 1} has a number where its text should be"
        if name == "messages" and str in set(map(type, columns[name])):
            yield name, "holds texts instead of lists of messages; parse them, if they are JSON"
    names = [name for name in ("labels", "label") if name in columns and task in _NEED_LABELS]
    for name in names[:1]:
        if problem := _label_problem(columns[name], task, configuration.labels):
            yield name, problem
    if problem := _token_problem(columns.get("input_ids", ()), configuration.vocabulary):
        yield "input_ids", problem


def _chat_fault(file: DatasetFile, columns: Columns) -> str:
    """The first of the first rows whose chat cannot be read, in a file of any format."""
    for name in _sources(columns)[:1]:
        for number, chat in enumerate(columns[name], 1):
            # A text may be a list of words, each with a label.
            if name not in ("input_ids", "text") and (fault := chat_fault(chat)):
                return f"{file.path}, row {number:,}: {fault}"
    return ""


def _token_problem(rows: Sequence[Any], vocabulary: int | None) -> str:
    tokens = itertools.chain.from_iterable(ids for ids in rows if isinstance(ids, list))
    for token in tokens:
        if vocabulary is not None and isinstance(token, int) and not 0 <= token < vocabulary:
            return (
                f"the first rows have the token id {token}, and the model has a vocabulary of "
                f"{vocabulary}: take those of the model's own tokenizer"
            )
    return ""


def _label_problem(values: Sequence[Any], task: Task, num_labels: int | None) -> str:
    if None in values:
        return "some of the first rows have no label"
    are_lists = [isinstance(value, list) for value in values]
    if task != "token-classification":
        if any(are_lists):
            return f"{task} needs one label a row, not a list"
        return _range_problem(values, num_labels)
    if not all(are_lists):
        return f"{task} needs a list of labels a row, one for each token"
    return _range_problem(list(itertools.chain(*values)), num_labels)


def _range_problem(values: Sequence[Any], num_labels: int | None) -> str:
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
